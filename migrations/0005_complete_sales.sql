-- What a sale needs for its whole life: being called off, shards, leases, revived orders, decided letters.

-- 4 void joins the states of an activity: called off before it began.

alter table seckill_product
  -- Parts the stock is split into in the admission store.
  add column shards tinyint unsigned not null default 1,
  add constraint ck_product_shards check (shards between 1 and 16),
  -- What is promised of a SKU is summed over its lots.
  add key ix_product_sku (sku_id);

-- Who writes the orders of a lot. A row is locked after the lot's own, by everybody.
create table sale_lease (
  activity_id bigint unsigned not null,
  sku_id bigint unsigned not null,
  owner varchar(128) not null,
  -- Rises with each new holder; a transaction under another token writes nothing.
  token bigint unsigned not null,
  expires_at datetime(3) not null,
  primary key (activity_id, sku_id)
) default character set utf8mb4 collate utf8mb4_bin;

alter table seckill_order
  -- How often the order was closed and revived.
  add column revision smallint unsigned not null default 0;

alter table orders
  -- The timer asks seckill_order, which knows the lot.
  drop key ix_orders_expire,
  -- Which of the buyer's orders for its lot it is, and how often it was closed and revived: known also when the row of
  -- seckill_order went on to a later one.
  add column gen smallint unsigned not null default 0,
  add column revision smallint unsigned not null default 0;

-- A task of the outbox that is done is deleted: its state 1 is not written.

-- What each payment did. Written first by whoever takes one, so that two transactions with one payment meet here.
create table payment (
  pay_no varchar(64) character set ascii collate ascii_bin not null primary key,
  order_no varchar(32) character set ascii collate ascii_bin not null,
  -- 1 paid, 2 paid and revived, 3 sent back
  outcome tinyint unsigned not null,
  created_at datetime(3) not null,
  -- The payments of an order.
  key ix_payment_order (order_no)
) default character set utf8mb4 collate utf8mb4_bin;

alter table dead_letter
  -- Who decided, when and why: the audit line.
  add column decided_by varchar(64) null,
  add column decided_at datetime(3) null,
  add column note varchar(512) not null default '';
