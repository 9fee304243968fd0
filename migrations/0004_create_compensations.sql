-- What is still owed to the outside, and what could not be done.

create table outbox (
  id bigint unsigned not null auto_increment primary key,
  topic varchar(32) character set ascii collate ascii_bin not null,
  dedupe_key varchar(96) character set ascii collate ascii_bin not null,
  payload json not null,
  -- 0 due, 1 done, 2 given up
  state tinyint unsigned not null default 0,
  attempts smallint unsigned not null default 0,
  next_at datetime(3) not null default current_timestamp(3),
  last_error varchar(512) null,
  -- Written in the transaction that causes it; once, whatever is repeated.
  unique key uk_outbox_dedupe (topic, dedupe_key),
  -- What is due, in order; relays skip each other's locked rows.
  key ix_outbox_due (state, next_at, id)
) default character set utf8mb4 collate utf8mb4_bin;

create table dead_letter (
  id bigint unsigned not null auto_increment primary key,
  source varchar(96) character set ascii collate ascii_bin not null,
  source_id varchar(96) character set ascii collate ascii_bin not null,
  payload json not null,
  error varchar(512) not null,
  attempts smallint unsigned not null,
  -- 0 open, 1 replayed, 2 dropped
  state tinyint unsigned not null default 0,
  created_at datetime(3) not null default current_timestamp(3),
  -- A letter that fails again is the same letter.
  unique key uk_dead_letter_source (source, source_id),
  -- The operator's list.
  key ix_dead_letter_open (state, created_at)
) default character set utf8mb4 collate utf8mb4_bin;
