-- One shard of a fairq store, format 1.
--
-- The table that a step's id stands in *is* the step's state: exactly one of ready, delayed, blocked,
-- limited, held, running, done. Moving between them is a delete and an insert in one transaction. What may not run
-- is simply not where the tally looks.
--
-- Times are milliseconds since 1970 in UTC. Bands: lower is served first. `attempt` counts tries
-- against the policy and may be given back; `fence` counts claims and only rises.
--
-- Set before the first table, and kept by the file: page_size 4096 (larger pages write more WAL a
-- commit, smaller ones gain nothing), auto_vacuum INCREMENTAL, journal_mode WAL, application_id 'fair', user_version 1.

-- Who this file is: it is refused under another number or in another store, and the store's
-- manifest can be made again from it.
CREATE TABLE shard(
  only      INTEGER PRIMARY KEY CHECK(only = 1),
  store     TEXT    NOT NULL,             -- the store's id
  number    INTEGER NOT NULL,             -- this shard, from 0
  shards    INTEGER NOT NULL,             -- how many the store has
  placement TEXT    NOT NULL,             -- 'key' or 'spread'
  created   INTEGER NOT NULL
) STRICT;

-- What was asked for. Written once, and again only when somebody edits the step: an update rewrites
-- the whole wide row.
CREATE TABLE steps(
  id      INTEGER PRIMARY KEY,            -- from counters.next_id, never used twice; its order is first-in-first-out
  shell   INTEGER NOT NULL,               -- 1: one line for sh -c; 0: an exact argv
  command BLOB    NOT NULL,               -- each word ended by NUL
  cwd     BLOB    NOT NULL,
  env     INTEGER NOT NULL,               -- envs.id
  band    INTEGER NOT NULL,
  key     TEXT    NOT NULL,
  weight  REAL    NOT NULL,
  created INTEGER NOT NULL,
  name    TEXT,
  policy  TEXT,                           -- JSON; NULL where all is default
  flow    TEXT                            -- the flow that it belongs to
) STRICT;
CREATE INDEX steps_by_flow ON steps(flow, id) WHERE flow IS NOT NULL;

-- Each distinct environment once: it is the widest part of a step and nearly always the same.
CREATE TABLE envs(
  id   INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice: runners remember what an id meant
  hash INTEGER NOT NULL,                  -- a hint; the bytes decide
  vars BLOB    NOT NULL                   -- NAME=VALUE, each ended by NUL, sorted
) STRICT;
CREATE INDEX envs_by_hash ON envs(hash);

CREATE TABLE tags(
  id  INTEGER NOT NULL,
  tag TEXT    NOT NULL,
  PRIMARY KEY(id, tag)
) STRICT, WITHOUT ROWID;
CREATE INDEX tags_by_name ON tags(tag, id);

-- Due now. The clustered key is the order of a fetch; narrow, because every step passes through.
CREATE TABLE ready(
  band    INTEGER NOT NULL,
  key     TEXT    NOT NULL,
  id      INTEGER NOT NULL,
  since   INTEGER NOT NULL,               -- when it became due
  weight  REAL    NOT NULL,
  attempt INTEGER NOT NULL,
  fence   INTEGER NOT NULL,
  PRIMARY KEY(band, key, id)
) STRICT, WITHOUT ROWID;

-- One row for each (band, key) with due steps, changed in the transaction that changes ready:
-- reading the best band costs O(keys) at ten thousand and at ten million steps alike.
CREATE TABLE tally(
  paused INTEGER NOT NULL,                -- 1: a row of pauses covers it, and nobody is served from it
  band   INTEGER NOT NULL,
  key    TEXT    NOT NULL,
  n      INTEGER NOT NULL,                -- exact
  head   INTEGER NOT NULL,                -- the least id, which is the oldest step
  since  INTEGER NOT NULL,                -- of the head
  weight REAL    NOT NULL,                -- of the head
  PRIMARY KEY(paused, band, key)
) STRICT, WITHOUT ROWID;

-- What does not start: steps of this band and of this key, NULL for all. The same on every shard.
CREATE TABLE pauses(
  band  INTEGER,
  key   TEXT,
  since INTEGER NOT NULL
) STRICT;

-- Due later.
CREATE TABLE delayed(
  id      INTEGER PRIMARY KEY,
  due     INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  fence   INTEGER NOT NULL
) STRICT;
CREATE INDEX delayed_by_due ON delayed(due, id);
-- Those that were tried before: a drain waits for them, and asks how many there are whenever a worker
-- falls idle. A million that are only delayed must not be walked for that.
CREATE INDEX retrying ON delayed(attempt) WHERE attempt > 0;

-- Waits for a person.
CREATE TABLE held(
  id      INTEGER PRIMARY KEY,
  since   INTEGER NOT NULL,
  due     INTEGER,                        -- not before this, once it is released
  attempt INTEGER NOT NULL,
  fence   INTEGER NOT NULL
) STRICT;

-- Waits for other steps. `missing` of its edges are open.
CREATE TABLE blocked(
  id      INTEGER PRIMARY KEY,
  missing INTEGER NOT NULL,
  due     INTEGER,                        -- not before this, once nothing is missing
  attempt INTEGER NOT NULL,
  fence   INTEGER NOT NULL
) STRICT;

-- What a step of this shard waits for, or has waited for.
CREATE TABLE edges(
  child  INTEGER NOT NULL,
  shard  INTEGER NOT NULL,                -- of the parent
  parent INTEGER NOT NULL,
  need   INTEGER NOT NULL,                -- 0 that it succeeds, 1 that it ends, 2 that it fails
  state  INTEGER NOT NULL,                -- 0 open, 1 met, 2 will never be
  PRIMARY KEY(child, shard, parent, need)
) STRICT, WITHOUT ROWID;
CREATE INDEX edges_by_parent ON edges(shard, parent);

-- Which steps, of any shard, are to be told when a step of this shard ends.
CREATE TABLE children(
  parent INTEGER NOT NULL,
  shard  INTEGER NOT NULL,                -- of the child
  child  INTEGER NOT NULL,
  PRIMARY KEY(parent, shard, child)
) STRICT, WITHOUT ROWID;

-- What steps of other shards have yet to be told: written with the end of the parent, removed when
-- the other shard has it. Several processes may have a letter in hand, and each removes it by its
-- id: one that was used again would be that of another letter.
CREATE TABLE outbox(
  id     INTEGER PRIMARY KEY AUTOINCREMENT,
  shard  INTEGER NOT NULL,                -- of the child
  child  INTEGER NOT NULL,
  parent INTEGER NOT NULL,
  state  INTEGER NOT NULL                 -- of the parent, as in done
) STRICT;

-- Waits for places of limits; `name` is one that was full when it was last looked at.
CREATE TABLE limited(
  name    TEXT    NOT NULL,
  band    INTEGER NOT NULL,
  key     TEXT    NOT NULL,
  id      INTEGER NOT NULL,
  since   INTEGER NOT NULL,
  weight  REAL    NOT NULL,
  attempt INTEGER NOT NULL,
  fence   INTEGER NOT NULL,
  PRIMARY KEY(name, band, key, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX limited_by_id ON limited(id);

-- The next three have rows on shard 0 only: limits hold for all shards together, so one place
-- decides. How many places a limit has; one that is not here has one.
CREATE TABLE limits(
  name   TEXT    PRIMARY KEY,
  places INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who has places: steps that run, or are due.
CREATE TABLE places(
  id    INTEGER PRIMARY KEY,              -- of this grant, never used twice
  name  TEXT    NOT NULL,
  shard INTEGER NOT NULL,                 -- of the step
  step  INTEGER NOT NULL,
  n     INTEGER NOT NULL,                 -- how many
  UNIQUE(shard, step, name)
) STRICT;

-- How much each key has had of a limit while others wanted it too: the least is served next.
CREATE TABLE passes(
  name TEXT NOT NULL,
  key  TEXT NOT NULL,
  pass REAL NOT NULL,
  PRIMARY KEY(name, key)
) STRICT, WITHOUT ROWID;

-- When steps fail that were never claimed by then.
CREATE TABLE expiring(
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL
) STRICT;
CREATE INDEX expiring_by_time ON expiring(at, id);

-- Which step stands for a unique key; a key is always on the same shard, its step on any.
CREATE TABLE uniques(
  key   TEXT    PRIMARY KEY,
  shard INTEGER NOT NULL,                 -- of the step
  step  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Claimed by a runner. At most as many rows as there are workers, so no index but the key.
CREATE TABLE running(
  id      INTEGER PRIMARY KEY,
  runner  INTEGER NOT NULL,
  fence   INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  since   INTEGER NOT NULL,
  claimed INTEGER NOT NULL,
  lease   INTEGER NOT NULL,               -- until when the claim stands where the runner's lock cannot be asked
  limits  INTEGER NOT NULL,               -- 1: it holds places of limits
  wish    INTEGER NOT NULL DEFAULT 0      -- 1: somebody has asked for its end
) STRICT;

-- Over. The row is also the record of the last try.
CREATE TABLE done(
  id      INTEGER PRIMARY KEY,
  state   INTEGER NOT NULL,               -- 0 succeeded, 1 failed, 2 cancelled
  fence   INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  runner  INTEGER,                        -- NULL: it was never claimed
  worker  INTEGER NOT NULL,
  since   INTEGER NOT NULL,
  claimed INTEGER NOT NULL,
  started INTEGER,                        -- NULL: there never was a process
  ended   INTEGER NOT NULL,
  ending  INTEGER NOT NULL,               -- 0 code, 1 signal, 2 not started, 3 interrupted, 4 lost, 5 timed out,
                                          -- 6 cancelled, 7 skipped, 8 expired: these three never ran
  code    INTEGER NOT NULL,               -- exit code or signal; 1 where it was killed after it timed out
  reason  TEXT
) STRICT;
CREATE INDEX dead_letters ON done(state, id) WHERE state <> 0;

-- The tries before the last one, and all tries of a step that is not over.
CREATE TABLE attempts(
  id      INTEGER NOT NULL,
  fence   INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  runner  INTEGER,
  worker  INTEGER NOT NULL,
  since   INTEGER NOT NULL,
  claimed INTEGER NOT NULL,
  started INTEGER,
  ended   INTEGER NOT NULL,
  ending  INTEGER NOT NULL,
  code    INTEGER NOT NULL,
  reason  TEXT,
  PRIMARY KEY(id, fence)
) STRICT, WITHOUT ROWID;

-- What a try wrote, where it wrote anything. Small outputs are here, large ones in files.
CREATE TABLE output(
  id     INTEGER NOT NULL,
  fence  INTEGER NOT NULL,
  stream INTEGER NOT NULL,                -- 0 standard output, 1 standard error
  bytes  BLOB,
  path   BLOB,                            -- below the store's directory
  size   INTEGER NOT NULL,
  PRIMARY KEY(id, fence, stream)
) STRICT, WITHOUT ROWID;

-- next_id; and how many steps stand in done in each state, so that nobody counts them.
CREATE TABLE counters(
  name  TEXT    PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO counters(name, value) VALUES
  ('next_id', 1), ('succeeded', 0), ('failed', 0), ('cancelled', 0),
  ('delayed', 0), ('blocked', 0), ('limited', 0), ('held', 0), ('next_place', 1);
