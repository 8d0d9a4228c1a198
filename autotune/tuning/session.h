// autotune/tuning/session.h -- one run of the tuner: what is there, what is missing, in which order it is measured.
// SPDX-License-Identifier: Apache-2.0
//
// The session decides and records; all work on candidates goes through a Runner, so that tests drive it with a fake one
// on a fake clock. Order: building.cpp (a binary everywhere), coverage.cpp (times of the defaults), then schedule.cpp
// picks buckets for search.cpp (a search among candidates) and merge.cpp (a neighbour's winner on probation); of
// operations that communicate all ranks then time the best ones together (rank_finals.cpp). For a GPU that is not here
// modelling.cpp takes the place of all of these. docs/tuning.md has the rules.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "autotune/engine/usable.h"
#include "autotune/grade.h"
#include "autotune/runner.h"
#include "autotune/tuning/refusals.h"
#include "seqtile/tuner.h"

namespace seqtile::autotune {

/// Outcome of a trial that was predicted and not run.
constexpr const char* kModelledOutcome = "modelled";
constexpr const char* kRefusedOutcome = "refused";  ///< by a compiler where the GPU is not; there it is tried

/// `space_hash` of records that were not chosen from a space.
inline std::string no_space() { return std::string(64, '0'); }

/// The source of the times that a session decides by.
enum class Evidence {
  measured,   ///< times of the device
  simulated,  ///< launches on the PTX machine: verified, with modelled times
  predicted,  ///< the cost model and counters; nothing is launched
};
/// The evidence that a session on this device has.
Evidence evidence_of(const Device& device);

/// One bucket of an item with what the store knows about it.
struct BucketState {
  Bucket bucket;
  std::optional<cache::Record> record;
  bool failed = false;    ///< no candidate works
  bool outdated = false;  ///< the record is not the last word: untuned, of another space, modelled and now measurable
  bool is_raced = false;  ///< all ranks have decided, where the item has ranks
  bool lacks_binary = false;                     ///< of its record
  std::optional<std::string> unfit_config = {};  ///< of a stored record that may not serve: the next one replaces it

  /// The octave's default, or its own, has no times yet.
  bool is_unmeasured() const { return record && record->origin == cache::Origin::fallback && record->samples == 0; }
  bool is_resolved() const { return failed || (record && !outdated); }
};

/// One key with its buckets, ascending. Requests of equal workloads share an item.
struct Item {
  std::string label;
  const OpDef* op = nullptr;
  Workload workload;
  cache::TuningKey key;
  std::vector<BucketState> buckets;
  int num_ranks = 0;  ///< that time the best configurations together; 0: it does not communicate, or not here
  std::shared_ptr<Usability> usable = {};        ///< once records are loaded
  std::vector<cache::BadRecord> misplaced = {};  ///< stored rows of the key that are of no bucket

  int64_t max_length() const { return buckets.back().bucket.hi; }
};

/// The legal configurations for a bucket, best predicted first.
struct RankedSpace {
  std::vector<Config> configs;
  std::string hash;
  Config default_config;
};

/// Normalised requests as items. Errors: invalid_argument naming the request.
std::vector<Item> make_items(const Registry& registry, const std::vector<TuneRequest>& requests,
                             const DeviceInfo& device, const std::string& policy);
/// Reads the store: fills records and flags of every bucket. What may not serve is a gap, with one line of the log.
void load_records(std::vector<Item>& items, const Target& target, cache::TuningStore& store,
                  Evidence evidence = Evidence::measured);
/// Notes which records have no binary that serves.
void find_lacking(std::vector<Item>& items, Device& device, ArtifactStore& artifacts);
/// Errors: invalid_argument when the default is not in the space.
RankedSpace rank_space(const Item& item, int64_t length, const Target& target);
/// The bucket's own default. Errors: invalid_argument when it is not in the space.
Config default_of(const Item& item, int64_t length, const Target& target);
/// Whether the candidate itself is at fault; on a busy or full machine any can hang or get no memory.
bool is_unfit(const Verdict& verdict);
/// Whether all ranks shall still decide the bucket.
bool awaits_ranks(const Item& item, const BucketState& state);
/// Whether the trials of the record's bucket say that all ranks have chosen its configuration.
bool is_chosen_by_ranks(const cache::Record& record, const std::vector<cache::TrialRow>& trials);
/// The ranks that can time the operation together on such a device, 0 where none can.
int ranks_to_race(const OpDef& op, const Workload& workload, const DeviceInfo& device);
void count_grade(Grade grade, TuneReport& report);
/// Runs of adjacent buckets with one configuration.
int64_t count_ranges(const std::vector<Item>& items);

class TuningSession {
 public:
  /// `items` come with their records loaded. All references must outlive the session.
  TuningSession(std::vector<Item> items, const Target& target, cache::TuningStore& store, Runner& runner,
                const TuneOptions& options, Evidence evidence = Evidence::measured);

  /// Works until everything is resolved, the budget is spent or the interrupt flag is set.
  /// Errors: invalid_argument (a budget too small for one measurement), io (the store refuses to write).
  TuneReport run();

  /// Seconds that the open buckets of an item will take for a GPU that is not here, on an idle machine: from the small
  /// calls and binaries that they need.
  static double estimate_modelling(Item& item, const Target& target);

 private:
  struct Found;  // search.cpp
  struct Measured;

  void build_lacking();  // building.cpp
  void build_all();
  void build_run(Item& item, const Config& config, const std::vector<size_t>& buckets);
  void build_bucket(Item& item, BucketState& state);
  void publish_built(Item& item, BucketState& state, const Config& config, double max_rel_err);
  void cover_gaps();
  void refuse(const Item& item, BucketState& state, const Verdict& verdict);
  void drop_unfit(const Item& item, BucketState& state);
  void measure_all();  // coverage.cpp
  void measure_item(Item& item);
  void cover_bucket(Item& item, BucketState& state);
  struct Open;  // modelling.cpp
  struct Modelled;
  void model_all();
  void model_item(Item& item);
  static Modelled rank_buckets(Item& item, const Target& target);
  std::optional<std::map<std::string, Counted>> count_small_calls(const Item& item,
                                                                  const std::vector<CountTask>& tasks);
  void refine(const Item& item, Modelled& modelled, const std::map<std::string, Counted>& counted);
  bool choose_compiling(Item& item, Modelled& modelled);
  void warn_refused(const Item& item, const Config& config, const Verdict& verdict);
  void warn_failed(const Item& item);
  void publish_modelled(Item& item, const Modelled& modelled);

  void tune_all();
  std::vector<std::pair<size_t, size_t>> order_level(int level) const;
  void tune_bucket(Item& item, size_t index, int level);
  bool try_merge(Item& item, size_t index);
  void search(Item& item, BucketState& state);
  void start_from_default(Item& item, BucketState& state, RankedSpace& space);
  std::vector<cache::TrialRow> usable_trials(const Item& item, const Bucket& bucket);
  std::map<std::string, cache::TrialRow> measured_trials(const Item& item, const Bucket& bucket);
  bool search_batches(Item& item, BucketState& state, const RankedSpace& space, Measured& measured);
  void recall(const BucketState& state, const RankedSpace& space, Measured& measured) const;
  void measure_batch(Item& item, BucketState& state, std::vector<Config> batch, int rounds, Measured& measured);
  std::vector<Found> pick_finalists(Item& item, BucketState& state, Measured& measured);
  std::vector<std::vector<double>> race_finalists(const std::vector<Config>& racing, const std::set<int64_t>& probes,
                                                  int rounds);
  const Found* run_finals(const Bucket& bucket, const Config& baseline, const std::vector<Found>& finalists);
  void decide(Item& item, BucketState& state, const RankedSpace& space, Measured& measured);

  struct RankLane;  // rank_finals.cpp
  void race_all_ranks();
  void settle_range(Item& item, size_t first, size_t last);
  void race_bucket(Item& item, BucketState& state);
  std::vector<RankLane> line_up_ranks(const Item& item, const BucketState& state,
                                      const std::map<std::string, cache::TrialRow>& trials);
  bool time_on_ranks(const Item& item, const BucketState& state, std::vector<RankLane>& lanes, int rounds);
  size_t pick_on_ranks(const Item& item, const BucketState& state, std::vector<RankLane>& lanes);
  void publish_raced(Item& item, BucketState& state, const std::vector<RankLane>& lanes, size_t winner,
                     std::map<std::string, cache::TrialRow>& trials);
  void note_rank_failure(const Item& item, const BucketState& state, const Config& config, const Verdict& verdict);

  void begin(Item& item) { runner_.begin(*item.op, item.workload, item.max_length()); }
  Verdict compile_and_check(const Config& config);
  bool is_over();  ///< budget spent or interrupted
  void report_progress(const std::string& activity, bool always = false);

  void note_trial(const Item& item, cache::TrialRow row);
  void keep(const Item& item, const Config& config);
  /// `by`: behind the line of progress.
  void publish(Item& item, BucketState& state, cache::Record record, const std::string& by = "");
  void flush();
  void remove_misplaced();

  std::vector<Item> items_;
  const Target& target_;
  cache::TuningStore& store_;
  Runner& runner_;
  const TuneOptions& options_;
  Evidence evidence_;
  TuneReport report_;
  double start_s_, last_progress_s_ = 0, last_flush_s_ = 0;

  int64_t num_published_ = 0;
  std::set<std::string> kept_;  ///< binaries that the artifact store was given, by workload and configuration
  Refusals refusals_;           ///< of candidates that did not compile

  // Rows that wait for the next transaction.
  std::vector<cache::KeyedRecord> pending_records_;
  std::vector<std::pair<cache::TuningKey, cache::TrialRow>> pending_trials_;
  std::vector<std::string> pending_lines_;
};

/// "qkv linear k=576 n=960 [129..144]".
std::string describe(const Item& item, const Bucket& bucket);
cache::TrialRow make_trial(const Bucket& bucket, const Config& config, const Verdict& verdict,
                           const std::vector<double>& us = {});
/// Median and spread of `us`, and of the default in the same rounds.
cache::Record make_record(const Bucket& bucket, const Config& config, const std::string& space_hash,
                          cache::Origin origin, const std::vector<double>& us, const std::vector<double>& default_us);

}  // namespace seqtile::autotune
