// autotune/engine/snapshot.h -- the tuning stores of an engine in layers, and a copy of their records in memory.
// SPDX-License-Identifier: Apache-2.0
//
// The layers are, the first one winning: the pinned file, the user's file, the system files. A layer that cannot be
// read is a miss with one warning. A Snapshot answers from memory, without SQLite.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "seqtile/engine.h"
#include "seqtile/stores.h"

namespace seqtile::autotune {

/// A decision as stored, with its file; the configuration is not parsed yet.
struct StoredRecord {
  cache::Record record;
  std::string source;
};

class Snapshot {
 public:
  /// The decisions for `key`, in the order of the layers. A decision may be unusable (usable.h).
  std::vector<StoredRecord> find(const cache::TuningKey& key) const;
  /// Why no layer has `key`: "the nearest key in FILE differs: ..." for the first layer that has a record. Empty if no
  /// layer has one.
  std::string nearest_key(const cache::TuningKey& key) const;

 private:
  friend class StoreLayers;
  static std::string identity(const cache::TuningKey& key);
  void add(const cache::KeyedRecord& keyed, const std::string& source, bool pinned);

  struct Source {
    std::string path;
    std::vector<cache::TuningKey> keys;
  };
  std::unordered_map<std::string, std::vector<StoredRecord>> records_;
  std::vector<Source> sources_;  ///< the layers that have records
};

class StoreLayers {
 public:
  /// Opens the files that the options name. The user's file is writable only under the policies that tune, so that a
  /// server creates no files. A named file that is absent or empty gets a warning; the user's default file may be
  /// either. A user's file that background tuning cannot write to gets a warning too.
  explicit StoreLayers(const EngineOptions& options);

  Snapshot read();
  /// The user's file, which tuning writes to.
  cache::TuningStore& user() { return *user_; }
  /// Whether the user's file can be written, or is only locked by another process.
  bool takes_records() const;
  /// Logs Snapshot::nearest_key() of an operation without records. It is a warning where a file is named and nothing is
  /// tuned; elsewhere nobody expects records.
  void log_without_records(const std::string& operation, const std::string& nearest) const;
  cache::Counters counters() const;  ///< sums over the files
  std::string paths() const;         ///< all files, for messages

 private:
  struct Layer {
    std::unique_ptr<cache::TuningStore> store;
    bool is_pinned = false;
  };
  void add_layer(const std::string& path, cache::OpenMode mode, bool is_pinned, bool is_named);

  std::vector<Layer> layers_;
  cache::TuningStore* user_ = nullptr;
  bool expects_records_ = false;
};

}  // namespace seqtile::autotune
