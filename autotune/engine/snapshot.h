// autotune/engine/snapshot.h -- the stores in layers, and everything they hold, read once.
// SPDX-License-Identifier: Apache-2.0
//
// Layers, first wins: the pinned file, the user's file, the system files. A layer that cannot be read is a miss with
// one warning. A Snapshot answers from memory; SQLite is not asked again until the next read().
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "autotune/engine.h"
#include "cache/tuning_store.h"

namespace seqtile::autotune {

/// A decision as stored, with the file it came from; its configuration is not parsed yet.
struct StoredRecord {
  cache::Record record;
  std::string source;
};

class Snapshot {
 public:
  /// The decisions for `key`, those of the first layer first. Some of them may not serve (usable.h).
  std::vector<StoredRecord> find(const cache::TuningKey& key) const;

 private:
  friend class StoreLayers;
  static std::string identity(const cache::TuningKey& key);
  void add(const cache::KeyedRecord& keyed, const std::string& source, bool pinned);

  std::unordered_map<std::string, std::vector<StoredRecord>> records_;
};

class StoreLayers {
 public:
  /// Opens the files that the options name. The user's is written only by the policies that tune: a server creates no
  /// files. A file that was named and is not there is warned about; the user's default file may be absent.
  explicit StoreLayers(const EngineOptions& options);

  Snapshot read();
  /// The file that tuning writes to.
  cache::TuningStore& user() { return *user_; }
  /// Fields in which `key` differs from the nearest stored key of the first layer that holds any record.
  std::vector<std::string> key_difference(const cache::TuningKey& key);
  cache::Counters counters() const;  ///< sums over the files
  std::string paths() const;  ///< for messages

 private:
  struct Layer {
    std::unique_ptr<cache::TuningStore> store;
    bool is_pinned = false;
  };
  void add_layer(const std::string& path, cache::OpenMode mode, bool is_pinned, bool is_named);

  std::vector<Layer> layers_;
  cache::TuningStore* user_ = nullptr;
};

}  // namespace seqtile::autotune
