-- What is sold: SKUs, activities, and the lots (one SKU in one activity) between them.
--
-- Everywhere: instants are datetime(3) in UTC, money is whole cents, counters are unsigned. A guard on an unsigned
-- counter is written as an addition (sold + n <= stock): a difference that would be negative is an error, not false.
-- Text that people read is compared by its bytes, so that two servers of different families agree.

create table product_sku (
  id bigint unsigned not null primary key,
  name varchar(128) not null,
  price_cents bigint unsigned not null,
  -- Units in the warehouse; sold ones are gone from it.
  stock int unsigned not null,
  -- Units of it that are promised to activities not settled yet.
  locked int unsigned not null default 0,
  constraint ck_sku_locked check (locked <= stock)
) default character set utf8mb4 collate utf8mb4_bin;

create table seckill_activity (
  id bigint unsigned not null auto_increment primary key,
  -- The shop that sells; 0 is the platform itself.
  shop_id bigint unsigned not null default 0,
  title varchar(128) not null,
  start_at datetime(3) not null,
  end_at datetime(3) not null,
  pay_ttl_s smallint unsigned not null default 1800,
  -- 0 draft, 1 published, 2 closing, 3 settled
  state tinyint unsigned not null default 0,
  created_at datetime(3) not null default current_timestamp(3),
  constraint ck_activity_window check (end_at > start_at),
  -- Which activities are on sale or drain: asked every few seconds.
  key ix_activity_end (state, end_at)
) default character set utf8mb4 collate utf8mb4_bin;

create table seckill_product (
  id bigint unsigned not null auto_increment primary key,
  activity_id bigint unsigned not null,
  sku_id bigint unsigned not null,
  price_cents bigint unsigned not null,
  seckill_stock int unsigned not null,
  -- Units in live orders.
  sold int unsigned not null default 0,
  per_user smallint unsigned not null default 1,
  -- Raised at each pre-heat and each rebuild; order events of another epoch are stale.
  epoch int unsigned not null default 0,
  -- A lot is found by what it is; the row is locked by every worker that writes its orders.
  unique key uk_product_lot (activity_id, sku_id),
  constraint ck_product_sold check (sold <= seckill_stock),
  constraint ck_product_per_user check (per_user >= 1)
) default character set utf8mb4 collate utf8mb4_bin;
