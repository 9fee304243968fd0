-- Who talks: sessions, their messages, the agents of a shop, and who may write which partition.

create table chat_session (
  id bigint unsigned not null auto_increment primary key,
  session_no varchar(32) character set ascii collate ascii_bin not null,
  shop_id bigint unsigned not null,
  user_id varchar(64) character set ascii collate ascii_bin not null,
  admin_id varchar(64) character set ascii collate ascii_bin null,
  subject varchar(255) not null,
  -- 0 open, 1 closed
  status tinyint unsigned not null default 0,
  -- 1 while open, null afterwards: unique keys ignore nulls, so only the open session is one of its kind.
  open_slot tinyint unsigned null default 1,
  -- Raised only when stored messages may have been lost.
  epoch int unsigned not null default 1,
  -- The last sequence number given out: 1, 2, 3 … without a gap, because it is given out in the same transaction.
  max_seq bigint unsigned not null default 0,
  -- Messages of each side so far.
  cum_user bigint unsigned not null default 0,
  cum_admin bigint unsigned not null default 0,
  -- How far each side has read, and how many messages of the other side that covers: unread is a difference.
  user_seq bigint unsigned not null default 0,
  admin_seq bigint unsigned not null default 0,
  user_seen bigint unsigned not null default 0,
  admin_seen bigint unsigned not null default 0,
  last_at datetime(3) not null,
  created_at datetime(3) not null default current_timestamp(3),
  unique key uk_chat_session_no (session_no),
  -- Opening twice finds the first.
  unique key uk_chat_session_open (shop_id, user_id, subject, open_slot),
  -- A user's open sessions, over all shops. They are few, so the latest is found by sorting them: with last_at in the
  -- index, every message would move an entry.
  key ix_chat_session_user (user_id, status),
  -- An agent's open sessions; with a null agent those that wait, oldest first, because the key ends in the id.
  key ix_chat_session_admin (shop_id, admin_id, status),
  constraint ck_chat_session_read check (user_seq <= max_seq and admin_seq <= max_seq),
  constraint ck_chat_session_seen check (user_seen <= cum_admin and admin_seen <= cum_user)
) default character set utf8mb4 collate utf8mb4_bin;

create table chat_message (
  session_id bigint unsigned not null,
  seq bigint unsigned not null,
  epoch int unsigned not null,
  shop_id bigint unsigned not null,
  -- 0 user, 1 agent
  side tinyint unsigned not null,
  sender_id varchar(64) character set ascii collate ascii_bin not null,
  client_msg_id varchar(64) character set ascii collate ascii_bin not null,
  kind varchar(16) character set ascii collate ascii_bin not null,
  content mediumtext not null,
  -- SHA-256 of kind and content as they were sent: the same id with another hash is a conflict.
  payload_hash binary(32) not null,
  bot tinyint unsigned not null default 0,
  -- Messages of each side up to and including this one.
  cum_user bigint unsigned not null,
  cum_admin bigint unsigned not null,
  created_at datetime(3) not null,
  -- A replay is one range of the primary key.
  primary key (session_id, seq),
  -- A message sent again is found, not stored again.
  unique key uk_chat_message_client (session_id, sender_id, side, client_msg_id)
) default character set utf8mb4 collate utf8mb4_bin;

-- Running number of a day's sessions, for session_no.
create table chat_day (
  day char(8) character set ascii collate ascii_bin not null primary key,
  sessions int unsigned not null
) default character set utf8mb4 collate utf8mb4_bin;

create table chat_lease (
  part smallint unsigned not null primary key,
  owner varchar(128) not null,
  -- Grows with every change of holder; whoever comes with an older one is fenced off.
  token bigint unsigned not null,
  expires_at datetime(3) not null
) default character set utf8mb4 collate utf8mb4_bin;

create table agent (
  shop_id bigint unsigned not null,
  admin_id varchar(64) character set ascii collate ascii_bin not null,
  -- 0 available, 1 away, 2 busy
  state tinyint unsigned not null default 0,
  created_at datetime(3) not null default current_timestamp(3),
  primary key (shop_id, admin_id)
) default character set utf8mb4 collate utf8mb4_bin;
