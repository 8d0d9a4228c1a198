// tests/cache/support.h -- folders, sample rows and child processes for the tests of the stores.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <fmt/format.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "seqtile/stores.h"
#include "tests/support/temp_folder.h"

namespace seqtile::test {

inline cache::TuningKey sample_key(int n = 4096) {
  return {.device_kind = "cpu",
          .device_name = "Test CPU @ 2.0GHz",
          .env_json = R"({"cores":2,"features":"avx512","llvm":"19.1.7","policy":"eager"})",
          .operation = "linear",
          .source_hash = std::string(64, 'a'),
          .workload_json = fmt::format(R"({{"dtype":"bf16","k":4096,"n":{},"threads":2}})", n),
          .version = 3};
}

inline cache::Record sample_record(int64_t lo = 5, int64_t hi = 8, cache::Origin origin = cache::Origin::tuned) {
  return {.bucket_version = 1,
          .lo = lo,
          .hi = hi,
          .origin = origin,
          .config_json = fmt::format(R"({{"block_m":{},"block_n":64}})", hi),
          .space_hash = std::string(64, 'b'),
          .median_us = 12.5,
          .p20_us = 12.25,
          .p80_us = 13.0,
          .default_us = 25.0,
          .samples = 15,
          .max_rel_err = 0.001953125,
          .noisy = true,
          .sliced = false,
          .measured_length = hi,
          .created_us = 1'700'000'000'000'000};
}

inline cache::TrialRow sample_trial(int number, const std::string& outcome = "ok", int64_t lo = 5, int64_t hi = 8) {
  return {.bucket_version = 1,
          .lo = lo,
          .hi = hi,
          .config_hash = fmt::format("{:064x}", number),
          .config_json = fmt::format(R"({{"block_m":{}}})", number),
          .outcome = outcome,
          .detail = "",
          .median_us = 10.0 + number,
          .p20_us = 9.5,
          .p80_us = 11.0,
          .samples = 7,
          .created_us = 1'700'000'000'000'000};
}

inline bool same_record(const cache::Record& a, const cache::Record& b) {
  return a.bucket_version == b.bucket_version && a.lo == b.lo && a.hi == b.hi && a.origin == b.origin &&
         a.config_json == b.config_json && a.space_hash == b.space_hash && a.median_us == b.median_us &&
         a.p20_us == b.p20_us && a.p80_us == b.p80_us && a.default_us == b.default_us && a.samples == b.samples &&
         a.max_rel_err == b.max_rel_err && a.noisy == b.noisy && a.sliced == b.sliced &&
         a.measured_length == b.measured_length && a.created_us == b.created_us;
}

/// Runs statements by plain SQLite, as a person in a shell would. Returns the rows, with their columns joined by '|'.
inline std::vector<std::string> run_sql(const std::string& path, const std::string& sql) {
  sqlite3* database = nullptr;
  std::vector<std::string> rows;
  char* error = nullptr;
  const auto add_row = [](void* out, int count, char** values, char**) {
    std::string row;
    for (int i = 0; i < count; ++i) row.append(i ? "|" : "").append(values[i] ? values[i] : "NULL");
    static_cast<std::vector<std::string>*>(out)->push_back(row);
    return 0;
  };
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  const int code = sqlite3_exec(database, sql.c_str(), add_row, &rows, &error);
  INFO(sql << ": " << (error ? error : ""));
  sqlite3_free(error);
  sqlite3_close(database);
  REQUIRE(code == SQLITE_OK);
  return rows;
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// Starts `body` in a child process that exits with its result.
inline pid_t start_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    bool is_good = false;
    try {
      is_good = body();
    } catch (...) {
    }
    _exit(is_good ? 0 : 1);
  }
  REQUIRE(child > 0);
  return child;
}

/// Returns true if the child returned true.
inline bool wait_child(pid_t child) {
  int state = 0;
  REQUIRE(waitpid(child, &state, 0) == child);
  return WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

inline bool run_in_child(const std::function<bool()>& body) { return wait_child(start_child(body)); }

/// Runs `body` in a child as another user, because root ignores permissions.
inline bool run_as_nobody(const std::function<bool()>& body) {
  return run_in_child([&] {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return false;
    return body();
  });
}

/// Processor time of this process, which the load of the machine does not change.
inline double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace seqtile::test
