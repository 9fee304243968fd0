-- People and their sessions: who serves whom and why, what has arrived where, how long users wait, what was taken back.

alter table chat_session
  -- What has arrived on at least one device of each side; what was read has.
  add column user_received bigint unsigned not null default 0,
  add column admin_received bigint unsigned not null default 0,
  -- Messages of the other side above each side's read cursor that were taken back: they are not unread.
  add column user_recalled bigint unsigned not null default 0,
  add column admin_recalled bigint unsigned not null default 0,
  -- Since when nobody serves it; null while somebody does, and once it is closed.
  add column waiting_since datetime(3) null,
  -- The oldest message of the user that no person has answered, and the first answer of a person.
  add column asked_at datetime(3) null,
  add column answered_at datetime(3) null,
  add column closed_at datetime(3) null,
  -- Clocks whose overrun was told, one bit each: 1 first response, 2 next response, 4 resolution. Cleared when a clock starts.
  add column overdue_told tinyint unsigned not null default 0,
  -- The waiting line of a shop, and the shops that have one.
  add key ix_chat_session_waiting (shop_id, waiting_since),
  add key ix_chat_session_waiting_shop (waiting_since, shop_id),
  -- Clocks that run too long and were not told.
  add key ix_chat_session_asked (status, overdue_told, asked_at),
  add key ix_chat_session_opened (status, overdue_told, created_at),
  add constraint ck_chat_session_recalled check (user_seen + user_recalled <= cum_admin and admin_seen + admin_recalled <= cum_user);

-- A session whose user wrote before anybody could answer has a clock that runs; what was answered is not asked any more.
update chat_session s set
  s.user_received = s.user_seq,
  s.admin_received = s.admin_seq,
  s.waiting_since = if(s.status = 0 and s.admin_id is null, s.created_at, null),
  s.closed_at = if(s.status = 0, null, s.last_at),
  s.answered_at = (
    select min(a.created_at) from chat_message a
    where a.session_id = s.id and a.side = 1 and a.bot = 0
      and a.seq > (select min(q.seq) from chat_message q where q.session_id = s.id and q.side = 0)
  ),
  s.asked_at = (
    select min(q.created_at) from chat_message q
    where q.session_id = s.id and q.side = 0
      and q.seq > coalesce((select max(a.seq) from chat_message a where a.session_id = s.id and a.side = 1 and a.bot = 0), 0)
  );

alter table chat_session
  add constraint ck_chat_session_received check (
    user_seq <= user_received and user_received <= max_seq and admin_seq <= admin_received and admin_received <= max_seq
  );

alter table chat_message
  -- The message that took this one back.
  add column recalled_by bigint unsigned null;

-- agent.state: 0 online, 1 away, 2 busy, 3 offline
alter table agent
  -- Open sessions it wants at most.
  add column open_max int unsigned null,
  -- When a connection of it was last known to be alive.
  add column seen_at datetime(3) not null default current_timestamp(3);

create table chat_handover (
  id bigint unsigned not null auto_increment primary key,
  session_id bigint unsigned not null,
  shop_id bigint unsigned not null,
  from_admin varchar(64) character set ascii collate ascii_bin null,
  to_admin varchar(64) character set ascii collate ascii_bin null,
  reason varchar(16) character set ascii collate ascii_bin not null,
  -- What the choice was made from.
  detail varchar(2000) not null,
  created_at datetime(3) not null,
  key ix_chat_handover_session (shop_id, session_id)
) default character set utf8mb4 collate utf8mb4_bin;

create table chat_device (
  session_id bigint unsigned not null,
  -- 0 user, 1 agent
  side tinyint unsigned not null,
  party_id varchar(64) character set ascii collate ascii_bin not null,
  device_id varchar(64) character set ascii collate ascii_bin not null,
  received_seq bigint unsigned not null default 0,
  read_seq bigint unsigned not null default 0,
  changed_at datetime(3) not null,
  primary key (session_id, side, party_id, device_id)
) default character set utf8mb4 collate utf8mb4_bin;
