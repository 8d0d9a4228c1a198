// tests/autotune/tune_test.cpp -- tune() as users call it, with real kernels, processes and files.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/tuner.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "autotune/keys.h"
#include "seqtile/error.h"
#include "seqtile/stores.h"
#include "tests/cache/support.h"
#include "tests/support/fakes/toy_ops.h"

using namespace seqtile;
using namespace seqtile::autotune;

namespace {

/// A folder with both stores and the locks.
struct Files {
  test::TempFolder folder;
  std::unique_ptr<cache::TuningStore> store;
  std::unique_ptr<cache::ArtifactDb> artifacts;
  Registry registry = test::toy_registry();

  Files() {
    setenv("SEQTILE_WORKER", SEQTILE_TUNING_HELPER, 1);
    setenv("SEQTILE_CACHE_DIR", folder.path().c_str(), 1);
    open();
  }
  ~Files() { unsetenv("SEQTILE_CACHE_DIR"); }
  void open() {
    store = cache::TuningStore::open(folder.file("tuning.db"), cache::OpenMode::read_write);
    artifacts = cache::ArtifactDb::open(folder.file("artifacts.db"), folder.file("key"));
  }
  TuneReport tune(const std::string& forms, int64_t hi, const TuneOptions& options = {}) {
    return autotune::tune(registry, {{"toy", test::toy_add(forms), 1, hi}}, "cpu", *store, *artifacts, options);
  }
  cache::TuningKey key(const std::string& forms) {
    return make_key(registry.find("toy_add"), test::toy_add(forms), open_device("cpu", 1)->info(), "cold");
  }
  std::map<std::string, std::string> outcomes(const std::string& forms, int64_t length) {
    const Bucket b = bucket(length);
    std::map<std::string, std::string> result;
    for (const auto& row : store->trials(key(forms), kBucketVersion, b.lo, b.hi))
      result[Config::parse(row.config_json).get_string("form")] = row.outcome;
    return result;
  }
};

/// Starts a tuning process whose output goes to `output`.
pid_t start_tuning(const Files& files, const std::string& forms, int64_t hi, const std::string& output) {
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid != 0) return pid;
  if (!freopen(output.c_str(), "w", stdout)) _exit(3);
  unsetenv("SEQTILE_WORKER");  // the helper is its own worker
  execl(SEQTILE_TUNING_HELPER, "tuning_helper", files.folder.path().c_str(), forms.c_str(), std::to_string(hi).c_str(),
        nullptr);
  _exit(3);
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

int wait_for(pid_t pid) {
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return status;
}

}  // namespace

TEST_CASE("tune: every bucket gets a record with a loadable binary, the second run does nothing", "[autotune][tune]") {
  Files files;
  const TuneReport report = files.tune("plain", 300);
  CHECK(report.covered);
  CHECK(report.complete);
  CHECK(report.trials > 0);
  const auto device = open_device("cpu", 1);
  const auto records = files.store->records(files.key("plain"));
  REQUIRE(records.size() == buckets(1, 300).size());
  for (const auto& record : records) {
    const auto binary = files.artifacts->load(make_artifact_key(files.registry.find("toy_add"), test::toy_add("plain"),
                                                                Config::parse(record.config_json), device->target()));
    REQUIRE(binary);
    CHECK(device->load(*binary));
  }

  files.open();
  const TuneReport second = files.tune("plain", 300);
  CHECK(second.trials == 0);
  CHECK(second.complete);
  CHECK(second.ranges == report.ranges);
}

TEST_CASE("tune: crash, hang, out-of-bounds write and wrong result are failed trials, the tuning completes",
          "[autotune][tune]") {
  Files files;
  const std::string forms = "plain/4,segfault/4,hang/4,oob/4,wrong/4,unwritten/4,plain/16";
  const TuneReport report = files.tune(forms, 2);
  CHECK(report.complete);
  for (const int64_t length : {1, 2}) {
    const auto outcomes = files.outcomes(forms, length);
    CHECK(outcomes.at("segfault") == "crash");
    CHECK(outcomes.at("hang") == "hang");
    CHECK(outcomes.at("oob") == "oob_write");
    CHECK(outcomes.at("wrong") == "wrong_result");
    CHECK(outcomes.at("unwritten") == "wrong_result");
    CHECK(outcomes.at("plain") == "ok");
  }
  for (const auto& record : files.store->records(files.key(forms)))
    CHECK(Config::parse(record.config_json).get_string("form") == "plain");
}

TEST_CASE("tune: bad requests and options are refused in one line", "[autotune][tune]") {
  Files files;
  const auto message = [&](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  };
  TuneOptions options;
  options.strategy = "magic";
  CHECK(message([&] { files.tune("plain", 4, options); }).find("exhaustive") != std::string::npos);
  options = {};
  options.policy = "tepid";
  CHECK(message([&] { files.tune("plain", 4, options); }).find("cold, warm") != std::string::npos);
  options = {};
  options.budget_s = -1;
  CHECK(message([&] { files.tune("plain", 4, options); }).find("-1") != std::string::npos);
  options.budget_s = 1e-6;
  CHECK(message([&] { files.tune("plain", 4, options); }).find("too small") != std::string::npos);
  CHECK(message([&] { files.tune("plain", 0); }).find("1..0") != std::string::npos);
}

TEST_CASE("tune: two processes at once measure nothing twice", "[autotune][tune]") {
  Files files;
  const std::string out[2] = {files.folder.file("one.txt"), files.folder.file("two.txt")};
  pid_t pids[2];
  for (int i = 0; i < 2; ++i) pids[i] = start_tuning(files, "plain", 256, out[i]);
  for (const pid_t pid : pids) CHECK(wait_for(pid) == 0);
  int64_t trials = 0;
  for (const std::string& path : out) {
    const auto lines = lines_of(path);
    REQUIRE(!lines.empty());
    trials += std::stoll(lines.back().substr(7));
  }
  int64_t rows = 0;
  for (const Bucket& b : buckets(1, 256))
    rows += static_cast<int64_t>(files.store->trials(files.key("plain"), kBucketVersion, b.lo, b.hi).size());
  CHECK(trials == rows);
}

TEST_CASE("tune: killed twenty times at random moments, nothing acknowledged is lost", "[autotune][tune]") {
  std::mt19937 random(11);
  auto files = std::make_unique<Files>();
  std::set<std::string> acknowledged;  // texts "[lo..hi]"
  int killed = 0, finished = 0;
  while (killed < 20 || finished == 0) {
    const std::string output = files->folder.file("out.txt");
    const pid_t pid = start_tuning(*files, "plain,slow/4", 4096, output);
    if (killed < 20) {
      usleep(20'000 + random() % 250'000);
      kill(pid, SIGKILL);
    }
    const int status = wait_for(pid);
    killed += WIFSIGNALED(status);
    for (const std::string& line : lines_of(output)) {
      const size_t from = line.find('['), to = line.find(']');
      if (from != std::string::npos && to != std::string::npos) acknowledged.insert(line.substr(from, to - from + 1));
    }
    files->open();
    CHECK(files->store->check().ok());
    std::set<std::string> stored;
    for (const auto& record : files->store->records(files->key("plain,slow/4")))
      stored.insert(fmt::format("[{}..{}]", record.lo, record.hi));
    for (const std::string& bucket : acknowledged) CHECK(stored.contains(bucket));
    if (WIFSIGNALED(status)) continue;
    ++finished;
    CHECK(status == 0);
    CHECK(acknowledged.size() == buckets(1, 4096).size());
    if (killed == 20) break;
    files.reset();  // on a fast machine, starts again with empty stores
    files = std::make_unique<Files>();
    acknowledged.clear();
  }
}

// Not part of ctest, because the result depends on the machine: autotune_tests "[measured]" -s
TEST_CASE("tune: on this machine the default, raced against its own copy, is kept", "[.][measured]") {
  Files files;
  TuneOptions options;
  options.merge = false;
  int kept = 0;
  for (int64_t n = 1000; n < 1100; ++n) {
    const Workload workload = test::toy_add("plain/16,copy/16", n);
    autotune::tune(files.registry, {{"toy", workload, 512, 512}}, "cpu", *files.store, *files.artifacts, options);
    const auto records =
        files.store->records(make_key(files.registry.find("toy_add"), workload, open_device("cpu", 1)->info(), "cold"));
    REQUIRE(records.size() == 1);
    kept += Config::parse(records[0].config_json).get_string("form") == "plain";
  }
  INFO("kept " << kept << " of 100");
  CHECK(kept >= 95);
}
