-- Who bought: the order of a lot, the order as the shop sees it, and the append-only book of stock movements.
--
-- Order numbers and principals are ascii_bin: their case matters, and an index on them is a quarter as wide.

create table seckill_order (
  id bigint unsigned not null auto_increment primary key,
  shop_id bigint unsigned not null default 0,
  order_no varchar(32) character set ascii collate ascii_bin not null,
  user_id varchar(64) character set ascii collate ascii_bin not null,
  activity_id bigint unsigned not null,
  sku_id bigint unsigned not null,
  qty smallint unsigned not null,
  -- Raised when the user buys again after a closed order: the row is used again, its history is in orders.
  gen smallint unsigned not null default 0,
  epoch int unsigned not null,
  -- 0 unpaid, 1 paid, 2 closed
  status tinyint unsigned not null default 0,
  -- The event it was written for.
  stream_id varchar(40) character set ascii collate ascii_bin not null,
  expire_at datetime(3) not null,
  created_at datetime(3) not null default current_timestamp(3),
  -- One order per user and lot: the last line of defence. The lot comes first because that is how workers ask.
  unique key uk_seckill_order_once (activity_id, sku_id, user_id),
  unique key uk_seckill_order_no (order_no),
  -- Unpaid orders whose time is over, without a sort.
  key ix_seckill_order_expire (status, expire_at),
  -- Sums units of live orders from the index alone.
  key ix_seckill_order_live (activity_id, sku_id, status, qty),
  constraint ck_seckill_order_qty check (qty >= 1)
) default character set utf8mb4 collate utf8mb4_bin;

create table orders (
  id bigint unsigned not null auto_increment primary key,
  shop_id bigint unsigned not null default 0,
  order_no varchar(32) character set ascii collate ascii_bin not null,
  user_id varchar(64) character set ascii collate ascii_bin not null,
  -- 1 ordinary, 2 flash sale
  kind tinyint unsigned not null,
  amount_cents bigint unsigned not null,
  -- 0 unpaid, 1 paid, 2 closed
  status tinyint unsigned not null default 0,
  pay_no varchar(64) character set ascii collate ascii_bin null,
  expire_at datetime(3) not null,
  paid_at datetime(3) null,
  closed_at datetime(3) null,
  -- 1 not paid in time, 2 cancelled, 3 refunded
  close_reason tinyint unsigned null,
  created_at datetime(3) not null default current_timestamp(3),
  unique key uk_orders_no (order_no),
  -- One payment pays one order.
  unique key uk_orders_pay (pay_no),
  -- A user's orders, latest first.
  key ix_orders_user (shop_id, user_id, created_at),
  -- Unpaid orders whose time is over, without a sort.
  key ix_orders_expire (status, expire_at)
) default character set utf8mb4 collate utf8mb4_bin;

create table order_item (
  id bigint unsigned not null auto_increment primary key,
  shop_id bigint unsigned not null default 0,
  order_no varchar(32) character set ascii collate ascii_bin not null,
  activity_id bigint unsigned not null default 0,
  sku_id bigint unsigned not null,
  qty smallint unsigned not null,
  price_cents bigint unsigned not null,
  -- The items of an order, each SKU once.
  unique key uk_order_item (order_no, sku_id),
  constraint ck_order_item_qty check (qty >= 1)
) default character set utf8mb4 collate utf8mb4_bin;

create table stock_ledger (
  id bigint unsigned not null auto_increment primary key,
  order_no varchar(32) character set ascii collate ascii_bin not null,
  -- 1 sale, 2 given back at close, 3 reserved again by a late payment, 4 given back at refund, 5 reconciled
  reason tinyint unsigned not null,
  activity_id bigint unsigned not null,
  sku_id bigint unsigned not null,
  delta int not null,
  epoch int unsigned not null,
  created_at datetime(3) not null default current_timestamp(3),
  -- An order moves stock once for each reason, whatever is repeated.
  unique key uk_stock_ledger_once (order_no, reason),
  -- Sums the movements of a lot.
  key ix_stock_ledger_lot (activity_id, sku_id, delta)
) default character set utf8mb4 collate utf8mb4_bin;
