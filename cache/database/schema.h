// cache/database/schema.h -- every SQL statement of the two stores, and their schema versions.
// SPDX-License-Identifier: Apache-2.0
//
// A file is ours when its application_id, user_version and the text of its tables and indexes equal what is written
// here; a version number alone can be forged or left over. Views are for people: they may be dropped, changed or added
// to, and the library never reads them. The comments inside the statements are stored in the file, where `.schema`
// shows them. Changing a statement of a table or index needs a new schema version. Meaning of all columns:
// docs/cache_format.md.
#pragma once
#include <cstdint>
#include <span>

namespace seqtile::cache {

struct Schema {
  const char* subject;  ///< for people
  int32_t application_id;
  int32_t user_version;
  std::span<const char* const> tables;  ///< tables and indexes, compared word for word when a file is opened
  std::span<const char* const> views;
  const char* column_query;  ///< finds a column that a table of the store has in every release, in whatever words
};

// ---- tuning.db ----

inline constexpr const char* kTuningTables[] = {
    R"(CREATE TABLE env(
  env_id INTEGER PRIMARY KEY,
  env_hash TEXT NOT NULL UNIQUE,  -- SHA-256 of device_kind, newline, manifest
  device_kind TEXT NOT NULL,      -- cpu, cuda, sim
  device_name TEXT NOT NULL,      -- for people, not part of the identity
  manifest TEXT NOT NULL,         -- JSON: device facts, toolchain, measurement policy
  row_sum BLOB NOT NULL
) STRICT)",
    R"(CREATE TABLE workload(
  workload_id INTEGER PRIMARY KEY,
  workload_hash TEXT NOT NULL UNIQUE,  -- SHA-256 of operation, newline, source_hash, newline, workload
  operation TEXT NOT NULL,
  source_hash TEXT NOT NULL,           -- of the operation's name and version
  version INTEGER NOT NULL,            -- of the operation, for people: source_hash has it
  workload TEXT NOT NULL,              -- JSON: static fields, dtype, threads; never the length
  row_sum BLOB NOT NULL
) STRICT)",
    R"(CREATE TABLE record(               -- the decision for one (env, workload, bucket)
  env_id INTEGER NOT NULL REFERENCES env(env_id),
  workload_id INTEGER NOT NULL REFERENCES workload(workload_id),
  bucket_version INTEGER NOT NULL,
  lo INTEGER NOT NULL,                -- first length of the bucket
  hi INTEGER NOT NULL,                -- last length of the bucket
  origin TEXT NOT NULL,               -- tuned, merged, default, modelled, pinned; no CHECK: later releases may add some
  config TEXT NOT NULL,               -- JSON: every parameter by name
  config_hash TEXT NOT NULL,          -- SHA-256 of config: that of the configuration's trial
  space_hash TEXT NOT NULL,           -- of the declared configuration space, not part of the identity
  median_us REAL NOT NULL,
  p20_us REAL NOT NULL,
  p80_us REAL NOT NULL,
  default_us REAL NOT NULL,           -- median of the default configuration in the same rounds
  samples INTEGER NOT NULL,
  max_rel_err REAL NOT NULL,          -- against the reference
  noisy INTEGER NOT NULL,
  sliced INTEGER NOT NULL,            -- measured on a slice of the grid
  measured_length INTEGER NOT NULL,
  created_us INTEGER NOT NULL,        -- Unix time, for people, never for ordering
  row_sum BLOB NOT NULL,
  PRIMARY KEY(env_id, workload_id, bucket_version, lo, hi)
) STRICT, WITHOUT ROWID)",
    R"(CREATE TABLE trial(                -- one measured or failed candidate
  env_id INTEGER NOT NULL REFERENCES env(env_id),
  workload_id INTEGER NOT NULL REFERENCES workload(workload_id),
  bucket_version INTEGER NOT NULL,
  lo INTEGER NOT NULL,
  hi INTEGER NOT NULL,
  config_hash TEXT NOT NULL,
  config TEXT NOT NULL,
  outcome TEXT NOT NULL,              -- ok, modelled, or how the candidate failed; no CHECK: later releases may add some
  detail TEXT NOT NULL,               -- for people
  median_us REAL NOT NULL,            -- of one process; 0: it has no time
  p20_us REAL NOT NULL,
  p80_us REAL NOT NULL,
  samples INTEGER NOT NULL,
  ranks INTEGER NOT NULL,             -- how many ranks ran it together; 0: one process alone did
  ranks_us REAL NOT NULL,             -- median of the slowest rank of each round; 0: it has no such time
  ranks_p20_us REAL NOT NULL,
  ranks_p80_us REAL NOT NULL,
  chosen INTEGER NOT NULL,            -- by all ranks: here, or at both ends of a range that has this bucket
  created_us INTEGER NOT NULL,
  row_sum BLOB NOT NULL,
  PRIMARY KEY(env_id, workload_id, bucket_version, lo, hi, config_hash)
) STRICT, WITHOUT ROWID)",
    R"(CREATE TABLE plan(                 -- how a graph is cut over a mesh, and what that costs
  plan_hash TEXT NOT NULL PRIMARY KEY,  -- SHA-256 of manifest
  manifest TEXT NOT NULL,             -- JSON: graph, mesh, prices, options, device and release: all that decides a plan
  records TEXT NOT NULL,              -- JSON: by kernel a hash of the records whose times are in it, empty without any
  plan TEXT NOT NULL,                 -- JSON: each operator's strategy, layouts and costs, and changes of layout
  objective REAL NOT NULL,            -- seconds, or the units of --costs compat
  lower_bound REAL NOT NULL,          -- no plan costs less
  is_exact INTEGER NOT NULL,
  ms REAL NOT NULL,                   -- what planning took
  created_us INTEGER NOT NULL,        -- Unix time, for people, never for ordering
  row_sum BLOB NOT NULL
) STRICT)"};

inline constexpr const char* kTuningViews[] = {
    R"(CREATE VIEW v_current AS           -- records of the newest version of each operation, and of the newest buckets
SELECT r.*, w.operation, w.workload, w.version FROM record r JOIN workload w USING(workload_id)
WHERE r.bucket_version = (SELECT max(bucket_version) FROM record) AND (w.operation, w.version) IN (
  SELECT operation, max(version) FROM workload JOIN record USING(workload_id) GROUP BY operation))",
    R"(CREATE VIEW v_best AS
SELECT e.device_name AS device, r.operation, r.workload, r.lo||'..'||r.hi AS lengths, r.origin,
  round(r.median_us, 2) AS median_us,
  CASE WHEN r.median_us > 0 AND r.default_us > 0 THEN round(r.default_us / r.median_us, 2) END AS speedup,
  r.config, r.lo, r.hi, round(r.p20_us, 2) AS p20_us, round(r.p80_us, 2) AS p80_us, r.samples,
  r.max_rel_err, r.noisy, r.sliced, r.measured_length, t.ranks, t.chosen, t.detail,
  json_extract(e.manifest, '$.toolchain') AS toolchain, r.version,
  datetime(r.created_us / 1000000, 'unixepoch') AS created_utc, r.env_id, r.workload_id, r.config_hash
FROM v_current r JOIN env e USING(env_id)
LEFT JOIN trial t USING(env_id, workload_id, bucket_version, lo, hi, config_hash)
ORDER BY r.env_id, r.operation, r.workload_id, r.lo)",
    R"(CREATE VIEW v_coverage AS
WITH step AS (
  SELECT *, lag(hi) OVER bucket IS NOT lo - 1 OR lag(config_hash) OVER bucket IS NOT config_hash AS is_first
  FROM v_current WINDOW bucket AS (PARTITION BY env_id, workload_id ORDER BY lo)),
run AS (SELECT *, sum(is_first) OVER (PARTITION BY env_id, workload_id ORDER BY lo) AS range_no FROM step)
SELECT e.device_name AS device, r.operation, r.workload, min(r.lo)||'..'||max(r.hi) AS lengths, count(*) AS buckets,
  CASE min(CASE WHEN r.origin IN ('tuned', 'merged', 'pinned') THEN 3 WHEN r.samples > 0 THEN 2 ELSE 1 END)
    WHEN 3 THEN 'searched' WHEN 2 THEN 'measured' ELSE 'built' END AS grade,
  group_concat(DISTINCT r.origin) AS origins,
  round(avg(CASE WHEN r.median_us > 0 AND r.default_us > 0 THEN r.default_us / r.median_us END), 2) AS mean_speedup,
  r.config, min(r.lo) AS lo, max(r.hi) AS hi, json_extract(e.manifest, '$.toolchain') AS toolchain, r.version,
  r.env_id, r.workload_id
FROM run r JOIN env e USING(env_id)
GROUP BY r.env_id, r.workload_id, r.range_no
ORDER BY r.env_id, r.operation, r.workload_id, min(r.lo))",
    R"(CREATE VIEW v_trials AS
SELECT e.device_name AS device, w.operation, w.workload, t.lo||'..'||t.hi AS lengths, t.outcome,
  round(nullif(t.median_us, 0), 2) AS median_us,
  round(nullif(t.median_us, 0) / min(CASE WHEN t.outcome = 'ok' THEN nullif(t.median_us, 0) END) OVER (
    PARTITION BY t.env_id, t.workload_id, t.bucket_version, t.lo, t.hi), 2) AS times_best,
  t.config, t.samples, t.ranks, round(nullif(t.ranks_us, 0), 2) AS ranks_us,
  round(nullif(t.ranks_p20_us, 0), 2) AS ranks_p20_us, round(nullif(t.ranks_p80_us, 0), 2) AS ranks_p80_us, t.chosen,
  t.detail, t.lo, t.hi, t.config_hash, w.version, datetime(t.created_us / 1000000, 'unixepoch') AS created_utc,
  t.env_id, t.workload_id
FROM trial t JOIN env e USING(env_id) JOIN workload w USING(workload_id)
ORDER BY t.env_id, w.operation, t.workload_id, t.lo, t.outcome <> 'ok', t.median_us, t.config_hash)",
    R"(CREATE VIEW v_failed AS
SELECT e.device_name AS device, w.operation, w.workload, t.lo||'..'||t.hi AS lengths, t.outcome,
  CASE WHEN t.outcome IN ('oom', 'refused') THEN 'yes' ELSE 'no' END AS tried_again, t.config, t.ranks, t.detail,
  t.lo, t.hi, t.config_hash, w.version, datetime(t.created_us / 1000000, 'unixepoch') AS created_utc, t.env_id,
  t.workload_id
FROM trial t JOIN env e USING(env_id) JOIN workload w USING(workload_id)
WHERE t.outcome NOT IN ('ok', 'modelled')
ORDER BY t.env_id, w.operation, t.workload_id, t.lo, t.outcome, t.config_hash)",
    R"(CREATE VIEW v_env AS
SELECT e.env_id, e.device_kind AS kind, e.device_name AS device,
  (SELECT count(*) FROM record r WHERE r.env_id = e.env_id) AS records,
  (SELECT count(*) FROM trial t WHERE t.env_id = e.env_id) AS trials, e.manifest, e.env_hash
FROM env e ORDER BY e.env_id)",
    R"(CREATE VIEW v_plans AS
SELECT json_extract(manifest, '$.costs') AS costs, json_extract(manifest, '$.mesh') AS mesh,
  json_array_length(plan, '$.operators') AS operators, objective, lower_bound, is_exact AS exact,
  round(ms, 2) AS ms, json_extract(manifest, '$.phase') AS phase, json_extract(manifest, '$.memory') AS memory,
  json_extract(manifest, '$.graph') AS graph, datetime(created_us / 1000000, 'unixepoch') AS created_utc, plan_hash
FROM plan ORDER BY created_us, plan_hash)"};

/// "sqtT" in ASCII.
inline constexpr Schema kTuningSchema{"a tuning store (tuning.db)",
                                      0x73717454,
                                      3,
                                      kTuningTables,
                                      kTuningViews,
                                      "SELECT 1 FROM pragma_table_info('record') WHERE name = 'row_sum'"};

inline constexpr const char* kSelectEnv =
    "SELECT env_id, device_kind, device_name, manifest, row_sum FROM env WHERE env_hash = ?1";
inline constexpr const char* kSelectAllEnvs =
    "SELECT env_id, env_hash, device_kind, device_name, manifest, row_sum FROM env";
inline constexpr const char* kInsertEnv =
    "INSERT OR REPLACE INTO env(env_id, env_hash, device_kind, device_name, manifest, row_sum) "
    "VALUES(?1,?2,?3,?4,?5,?6)";
inline constexpr const char* kSelectWorkload =
    "SELECT workload_id, operation, source_hash, version, workload, row_sum FROM workload WHERE workload_hash = ?1";
inline constexpr const char* kSelectAllWorkloads =
    "SELECT workload_id, workload_hash, operation, source_hash, version, workload, row_sum FROM workload";
inline constexpr const char* kInsertWorkload =
    "INSERT OR REPLACE INTO workload(workload_id, workload_hash, operation, source_hash, version, workload, row_sum) "
    "VALUES(?1,?2,?3,?4,?5,?6,?7)";

#define SEQTILE_RECORD_FIELDS                                                                                         \
  "bucket_version, lo, hi, origin, config, config_hash, space_hash, median_us, p20_us, p80_us, default_us, samples, " \
  "max_rel_err, noisy, sliced, measured_length, created_us, row_sum"
#define SEQTILE_TRIAL_FIELDS                                                                                  \
  "bucket_version, lo, hi, config_hash, config, outcome, detail, median_us, p20_us, p80_us, samples, ranks, " \
  "ranks_us, ranks_p20_us, ranks_p80_us, chosen, created_us, row_sum"

inline constexpr const char* kSelectRecords =
    "SELECT " SEQTILE_RECORD_FIELDS
    " FROM record WHERE env_id = (SELECT env_id FROM env WHERE env_hash = ?1) "
    "AND workload_id = (SELECT workload_id FROM workload WHERE workload_hash = ?2) ORDER BY bucket_version, lo, hi";
inline constexpr const char* kSelectRecord =
    "SELECT " SEQTILE_RECORD_FIELDS
    " FROM record WHERE env_id = ?1 AND workload_id = ?2 AND bucket_version = ?3 AND lo = ?4 AND hi = ?5";
inline constexpr const char* kSelectAllRecords = "SELECT env_id, workload_id, " SEQTILE_RECORD_FIELDS
                                                 " FROM record ORDER BY env_id, workload_id, bucket_version, lo";
inline constexpr const char* kInsertRecord =
    "INSERT OR REPLACE INTO record(env_id, workload_id, " SEQTILE_RECORD_FIELDS
    ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20)";
inline constexpr const char* kDeleteRecord =
    "DELETE FROM record WHERE env_id = (SELECT env_id FROM env WHERE env_hash = ?1) "
    "AND workload_id = (SELECT workload_id FROM workload WHERE workload_hash = ?2) "
    "AND bucket_version = ?3 AND lo = ?4 AND hi = ?5";
inline constexpr const char* kDeleteTrials =
    "DELETE FROM trial WHERE env_id = (SELECT env_id FROM env WHERE env_hash = ?1) "
    "AND workload_id = (SELECT workload_id FROM workload WHERE workload_hash = ?2) "
    "AND bucket_version = ?3 AND lo = ?4 AND hi = ?5";
inline constexpr const char* kSelectTrials =
    "SELECT " SEQTILE_TRIAL_FIELDS
    " FROM trial WHERE env_id = (SELECT env_id FROM env WHERE env_hash = ?1) "
    "AND workload_id = (SELECT workload_id FROM workload WHERE workload_hash = ?2) "
    "AND bucket_version = ?3 AND lo = ?4 AND hi = ?5 ORDER BY config_hash";
inline constexpr const char* kSelectAllTrials = "SELECT env_id, workload_id, " SEQTILE_TRIAL_FIELDS " FROM trial";
inline constexpr const char* kInsertTrial =
    "INSERT OR REPLACE INTO trial(env_id, workload_id, " SEQTILE_TRIAL_FIELDS
    ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20)";

#define SEQTILE_PLAN_FIELDS "manifest, records, plan, objective, lower_bound, is_exact, ms, created_us, row_sum"
inline constexpr const char* kSelectPlan = "SELECT " SEQTILE_PLAN_FIELDS " FROM plan WHERE plan_hash = ?1";
inline constexpr const char* kSelectAllPlans =
    "SELECT plan_hash, " SEQTILE_PLAN_FIELDS " FROM plan ORDER BY created_us, plan_hash";
inline constexpr const char* kInsertPlan =
    "INSERT OR REPLACE INTO plan(plan_hash, " SEQTILE_PLAN_FIELDS ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)";
#undef SEQTILE_PLAN_FIELDS

#undef SEQTILE_RECORD_FIELDS
#undef SEQTILE_TRIAL_FIELDS

// ---- artifacts.db ----

inline constexpr const char* kArtifactTables[] = {
    R"(CREATE TABLE artifact(
  key_hash TEXT NOT NULL PRIMARY KEY,  -- SHA-256 of manifest
  manifest TEXT NOT NULL,              -- operation, source hash, static fields, configuration, target, toolchain
  symbol TEXT NOT NULL,
  target TEXT NOT NULL,
  stage TEXT NOT NULL,                 -- blob, ptx, cubin
  entry_offset INTEGER NOT NULL,
  arena_bytes INTEGER NOT NULL,
  num_slots INTEGER NOT NULL,
  gpu_launch TEXT NOT NULL,            -- JSON: threads, shared memory, cluster, tensor maps; empty for CPUs
  created_us INTEGER NOT NULL,
  used_us INTEGER NOT NULL,            -- written at most once a day; the oldest are evicted first
  mac BLOB NOT NULL,                   -- keyed BLAKE2b over everything but the two times
  code BLOB NOT NULL
) STRICT)",
    "CREATE INDEX artifact_by_use ON artifact(used_us)"};

inline constexpr const char* kArtifactViews[] = {
    R"(CREATE VIEW v_artifacts AS
SELECT symbol, target, stage, length(code) AS code_bytes, arena_bytes,
  datetime(created_us / 1000000, 'unixepoch') AS created_utc, datetime(used_us / 1000000, 'unixepoch') AS used_utc,
  manifest
FROM artifact ORDER BY symbol)"};

/// "sqtA" in ASCII.
inline constexpr Schema kArtifactSchema{"an artifact store (artifacts.db)",
                                        0x73717441,
                                        2,
                                        kArtifactTables,
                                        kArtifactViews,
                                        "SELECT 1 FROM pragma_table_info('artifact') WHERE name = 'mac'"};

inline constexpr const char* kSelectArtifact =
    "SELECT manifest, symbol, target, stage, entry_offset, arena_bytes, num_slots, gpu_launch, used_us, mac, code "
    "FROM artifact WHERE key_hash = ?1";
// From both ends, for a file with a damaged page in between.
inline constexpr const char* kArtifactKeys[] = {"SELECT key_hash FROM artifact ORDER BY key_hash",
                                                "SELECT key_hash FROM artifact ORDER BY key_hash DESC"};
inline constexpr const char* kSelectManifest = "SELECT manifest FROM artifact WHERE key_hash = ?1";
inline constexpr const char* kSelectAllManifests = "SELECT manifest FROM artifact";
inline constexpr const char* kInsertArtifact =
    "INSERT OR REPLACE INTO artifact(key_hash, manifest, symbol, target, stage, entry_offset, arena_bytes, num_slots, "
    "gpu_launch, created_us, used_us, mac, code) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)";
inline constexpr const char* kTouchArtifact = "UPDATE artifact SET used_us = ?2 WHERE key_hash = ?1";
inline constexpr const char* kEvictArtifacts =
    "DELETE FROM artifact WHERE key_hash IN (SELECT key_hash FROM artifact WHERE key_hash <> ?1 "
    "ORDER BY used_us, key_hash LIMIT 1)";

// ---- both ----

inline constexpr const char* kConnectionSetup =
    "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY; PRAGMA foreign_keys = ON;";
inline constexpr const char* kRollbackJournal = "PRAGMA journal_mode = DELETE";
inline constexpr const char* kSynchronousFull = "PRAGMA synchronous = FULL";
inline constexpr const char* kSynchronousNormal = "PRAGMA synchronous = NORMAL";
inline constexpr const char* kApplicationId = "PRAGMA application_id";
inline constexpr const char* kUserVersion = "PRAGMA user_version";
inline constexpr const char* kSchemaTexts = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL";
inline constexpr const char* kPagesInUse =
    "SELECT (SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count), "
    "(SELECT page_size FROM pragma_page_size)";
inline constexpr const char* kStructureCheck = "PRAGMA quick_check(1)";
inline constexpr const char* kIntegrityCheck = "PRAGMA integrity_check(20)";
inline constexpr const char* kBeginRead = "BEGIN";
inline constexpr const char* kBeginWrite = "BEGIN IMMEDIATE";
inline constexpr const char* kBeginExclusive = "BEGIN EXCLUSIVE";
inline constexpr const char* kCommit = "COMMIT";
inline constexpr const char* kRollback = "ROLLBACK";

}  // namespace seqtile::cache
