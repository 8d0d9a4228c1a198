// autotune/engine/usable.h -- decides if a stored record may serve, for engine, tuner and commands alike.
// SPDX-License-Identifier: Apache-2.0
//
// A record is refused for its own fields (ladder, bucket, times, configuration text), or because its configuration does
// not fit the space, the argument block or the memory. A record that is not refused needs a binary: the stored binary
// if it belongs to the configuration and loads, else a compiled one. Cheap checks come first. build() is the only
// function that compiles. docs/tuning.md#which-records-serve lists the reasons.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autotune/engine/launch.h"
#include "seqtile/device.h"
#include "seqtile/op.h"
#include "seqtile/stores.h"

namespace seqtile::autotune {

struct Judgement {
  Config config;        ///< of the record; empty if the record's fields are refused
  std::string refusal;  ///< why the record may not serve, in one line; empty: it may
  std::string lack;     ///< why its binary must be compiled first; empty if not, or if the binary was not judged
  bool is_usable() const { return refusal.empty(); }
  bool is_ready() const { return refusal.empty() && lack.empty(); }
};

/// Judges the records of one key. Findings about a configuration are kept. Not thread-safe.
class Usability {
 public:
  /// Requires: `op` outlives the object.
  Usability(const OpDef& op, Workload workload, const Target& target);

  /// Judges the record without its binary.
  Judgement judge(const cache::Record& record);
  /// Why the configuration may not serve the bucket of `length`, in one line; empty: it may.
  std::string refusal(const Config& config, int64_t length);
  /// Judges the record and its stored binary, which is loaded on `device`.
  Judgement judge(const cache::Record& record, Device& device, ArtifactStore& artifacts);
  /// Why `binary` is not the configuration's binary for this target, in one line; empty: it is.
  std::string misfit(const Config& config, const KernelBinary& binary);
  /// Compiles the configuration. Errors: compile_failed; invalid_argument if misfit() refuses the binary.
  KernelBinary build(const Config& config);
  ArtifactKey artifact_key(const Config& config) const;
  /// Number of usable binaries judged so far, by stage: blob, ptx, cubin.
  const std::map<std::string, int64_t>& stages() const { return stages_; }

 private:
  struct Known {
    std::string refusal;  ///< that holds at every length
    std::vector<Workspace> workspaces;
    std::vector<int64_t> legal_at;  ///< indices of buckets whose space is known to have the configuration
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

/// The records of the key that may serve; binaries are not judged.
std::vector<cache::Record> usable_records(const OpDef& op, const Workload& workload, const Target& target,
                                          cache::TuningStore& store, const cache::TuningKey& key);

/// The end of the bucket's octave. The default of that length serves a bucket of a key without any record unless the
/// miss policy is "default": the buckets of an octave share it, so that a server compiles few binaries.
int64_t octave_end(const Bucket& bucket);

/// The configuration in a stored text; nullopt if the text is no configuration.
std::optional<Config> parse_config(const std::string& json);

}  // namespace seqtile::autotune
