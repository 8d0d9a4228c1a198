// autotune/engine/usable.h -- whether a stored decision may serve: the one judgement of engine, tuner and commands.
// SPDX-License-Identifier: Apache-2.0
//
// A record is refused for what it says (ladder, bucket, times, configuration), and for what its configuration does not
// fit (space, argument block, memory). A record that is not refused needs a binary: the stored one when it is that of
// the configuration and loads, else one that is compiled. Cheap questions come first; nothing is compiled here unless
// build() is asked for. docs/tuning.md#which-records-serve lists the reasons.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autotune/engine/launch.h"
#include "autotune/op_def.h"
#include "cache/tuning_store.h"
#include "jit/device/artifact_store.h"
#include "jit/device/device.h"

namespace seqtile::autotune {

struct Judgement {
  Config config;        ///< of the record; empty where its text is no configuration
  std::string refusal;  ///< why the record may not serve, in one line; empty: it may
  std::string lack;     ///< why its binary must be compiled first; empty where that was not asked for, too
  bool is_usable() const { return refusal.empty(); }
  bool is_ready() const { return refusal.empty() && lack.empty(); }
};

/// Judges the records of one key. Remembers what it found out about a configuration. Not thread-safe.
class Usability {
 public:
  /// `op` outlives it.
  Usability(const OpDef& op, Workload workload, const Target& target);

  /// The record alone.
  Judgement judge(const cache::Record& record);
  /// Why the configuration may not serve the bucket of `length`; empty: it may.
  std::string refusal(const Config& config, int64_t length);
  /// The record with its binary.
  Judgement judge(const cache::Record& record, Device& device, ArtifactStore& artifacts);
  /// Why a binary is not one of the configuration for this target, in one line; empty: it is.
  std::string misfit(const Config& config, const KernelBinary& binary);
  /// Compiles the configuration. Errors: compile_failed, and invalid_argument for a misfit.
  KernelBinary build(const Config& config);
  ArtifactKey artifact_key(const Config& config) const;
  /// Binaries of the records judged so far that serve, by what they are: blob, ptx, cubin.
  const std::map<std::string, int64_t>& stages() const { return stages_; }

 private:
  struct Known {
    std::string refusal;  ///< at every length
    std::vector<Workspace> workspaces;
    std::vector<int64_t> legal_at;  ///< positions of buckets whose space has it, as far as they were looked at
    std::optional<std::string> lack;
  };
  Known& known(const Config& config);
  std::string refusal_of_space(const Config& config, Known& known, int64_t index) const;
  std::string refusal_of_memory(const Known& known, int64_t length) const;
  std::string find_lack(const Config& config, Device& device, ArtifactStore& artifacts);
  int num_slots(const Known& known) const { return layout_.num_slots(static_cast<int>(known.workspaces.size())); }

  const OpDef& op_;
  const Workload workload_;
  const Target target_;
  const Schema schema_;
  const CallLayout layout_;
  std::map<std::string, Known> known_;  ///< by the configuration's JSON
  std::map<std::string, int64_t> stages_;
};

/// The records of the key that may serve, with or without their binaries.
std::vector<cache::Record> usable_records(const OpDef& op, const Workload& workload, const Target& target,
                                          cache::TuningStore& store, const cache::TuningKey& key);

/// The configuration that a stored text says; nothing where it says none.
std::optional<Config> parse_config(const std::string& json);

}  // namespace seqtile::autotune
