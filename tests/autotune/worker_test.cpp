// tests/autotune/worker_test.cpp -- real worker processes and candidates that misbehave.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/process_runner.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

#include "autotune/worker/stats.h"
#include "seqtile/error.h"
#include "tests/cache/support.h"
#include "tests/support/fakes/toy_ops.h"

using namespace seqtile;
using namespace seqtile::autotune;

namespace {

class NoArtifacts : public ArtifactStore {
 public:
  std::optional<KernelBinary> load(const ArtifactKey&) override { return std::nullopt; }
  bool store(const ArtifactKey& key, const KernelBinary&) override {
    stored.push_back(key.hash);
    return takes;
  }
  std::vector<std::optional<KernelBinary>> load_all(const std::vector<ArtifactKey>& keys) override {
    return std::vector<std::optional<KernelBinary>>(keys.size());
  }
  std::vector<std::string> stored;
  bool takes = true;
};

Config config(const std::string& form, int64_t block = 4) { return {{"form", form}, {"block", block}}; }

/// A runner of real processes over the toy operation.
struct Bench {
  NoArtifacts artifacts;
  OpDef op = test::toy_add_op();
  Workload workload = test::toy_add("plain");
  std::unique_ptr<ProcessRunner> runner;

  explicit Bench(RunnerLimits limits = {120, 60, 120}, const std::string& device = "cpu") {
    setenv("SEQTILE_WORKER", SEQTILE_TUNING_HELPER, 1);
    const Target target = device == "cpu" ? host_target() : open_device(device, 1)->target();
    runner = std::make_unique<ProcessRunner>(device, target, "cold", artifacts, limits);
    runner->begin(op, workload, 4096);
  }
  Verdict verify(const Config& candidate) {
    const Verdict compiled = runner->compile({&candidate, 1})[0];
    return compiled.ok() ? runner->check(candidate) : compiled;
  }
  bool still_works() {
    const std::vector<Config> plain{config("plain")};
    return verify(plain[0]).ok() && runner->measure(plain, {64, 3, 3, 1, false})[0].us.size() == 3;
  }
};

}  // namespace

TEST_CASE("worker: a right candidate compiles, verifies in every bucket and is measured", "[autotune][worker]") {
  Bench bench;
  const Config plain = config("plain", 16);
  REQUIRE(bench.verify(plain).detail == "");
  for (const int64_t length : {1, 2, 17, 1000, 4096})
    CHECK(bench.runner->check_bucket(plain, bucket(length)).detail == "");
  const std::vector<Config> both{plain, config("plain", 4)};
  REQUIRE(bench.verify(both[1]).ok());
  const auto series = bench.runner->measure(both, {512, 7, 15, 1, false});
  REQUIRE(series.size() == 2);
  for (const Series& one : series) {
    CHECK(one.verdict.ok());
    CHECK(one.us.size() >= 7);
    CHECK(median(one.us) > 0);
    CHECK_FALSE(one.sliced);
  }
  CHECK(bench.runner->keep(plain));
  CHECK(bench.runner->keep(plain));
  CHECK(bench.artifacts.stored.size() == 1);
  bench.artifacts.takes = false;
  CHECK_FALSE(bench.runner->keep(both[1]));
}

TEST_CASE("worker: descriptors of the server stay with the server", "[autotune][worker]") {
  int ends[2];  // both may be inherited, as the connections of many a server
  REQUIRE(pipe2(ends, O_NONBLOCK) == 0);
  Bench bench;
  REQUIRE(bench.still_works());
  close(ends[1]);
  char byte;
  CHECK(read(ends[0], &byte, 1) == 0);  // the end: the worker, which lives, has no copy to write to
  close(ends[0]);
  CHECK(bench.still_works());
}

TEST_CASE("worker: each kind of wrong candidate is told apart", "[autotune][worker]") {
  Bench bench;
  const std::vector<std::pair<std::string, std::string>> expected{
      {"wrong", "wrong_result"},       {"unwritten", "wrong_result"}, {"oob", "oob_write"},
      {"under", "oob_write"},          {"dirty", "nondeterministic"}, {"no_verify", "compile_error"},
      {"build_throw", "compile_error"}};
  for (const auto& [form, outcome] : expected) {
    INFO(form);
    const Verdict verdict = bench.verify(config(form));
    CHECK(verdict.outcome == outcome);
    CHECK_FALSE(verdict.detail.empty());
  }
  CHECK(bench.verify(config("unwritten")).detail.find("never written") != std::string::npos);
  CHECK(bench.verify(config("oob")).detail.find("past its end") != std::string::npos);
  CHECK(bench.verify(config("under")).detail.find("before its start") != std::string::npos);
  CHECK(bench.still_works());
}

TEST_CASE("worker: an infinite result is a verdict with an infinite error", "[autotune][worker]") {
  Bench bench;
  const Verdict verdict = bench.verify(config("infinite"));
  CHECK(verdict.outcome == "wrong_result");
  CHECK(verdict.detail.find("element 0 is inf, must be ") != std::string::npos);
  CHECK(verdict.max_rel_err == HUGE_VAL);
  CHECK(bench.still_works());
}

TEST_CASE("worker: a candidate that is wrong at long lengths only is caught in its bucket", "[autotune][worker]") {
  Bench bench;
  const Config tail = config("wrong_tail", 16);
  REQUIRE(bench.verify(tail).ok());
  CHECK(bench.runner->check_bucket(tail, bucket(200)).ok());
  CHECK(bench.runner->check_bucket(tail, bucket(3000)).outcome == "wrong_result");
}

TEST_CASE("worker: a segmentation fault is a verdict and the next worker takes over", "[autotune][worker]") {
  Bench bench;
  const Verdict verdict = bench.verify(config("segfault"));
  CHECK(verdict.outcome == "crash");
  CHECK(bench.still_works());
}

TEST_CASE("worker: a candidate that never ends is killed after its limit", "[autotune][worker]") {
  Bench bench({30, 3, 60});
  const Verdict verdict = bench.verify(config("hang"));
  CHECK(verdict.outcome == "hang");
  CHECK(verdict.detail.find("3 s") != std::string::npos);
  CHECK(bench.still_works());
}

TEST_CASE("worker: a builder that aborts or never returns costs one candidate", "[autotune][worker]") {
  Bench bench({3, 60, 60});
  CHECK(bench.verify(config("build_abort")).outcome == "crash");
  CHECK(bench.verify(config("build_hang")).outcome == "compile_timeout");
  CHECK(bench.still_works());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("worker: memory is limited", "[autotune][worker]") {
  Bench bench;
  CHECK(bench.verify(config("build_memory")).outcome == "oom");
  CHECK(bench.still_works());
}
#endif

TEST_CASE("worker: a crash while measuring is put down to the right candidate", "[autotune][worker]") {
  // The tuner never measures without verifying; this test does.
  Bench bench;
  const std::vector<Config> racing{config("plain"), config("segfault"), config("plain", 16)};
  bench.runner->compile(racing);
  const auto series = bench.runner->measure(racing, {64, 3, 3, 1, false});
  CHECK(series[0].us.size() == 3);
  CHECK(series[1].verdict.outcome == "crash");
  CHECK(series[2].us.size() == 3);
}

TEST_CASE("worker: a hopeless candidate is measured once", "[autotune][worker]") {
  Bench bench;
  bench.workload = test::toy_add("plain", 1024);
  bench.runner->begin(bench.op, bench.workload, 4096);
  const std::vector<Config> racing{config("plain", 16), config("slow", 16)};
  for (const Config& c : racing) REQUIRE(bench.verify(c).ok());
  const auto series = bench.runner->measure(racing, {1024, 7, 7, 1, true});
  CHECK(series[0].us.size() == 7);
  CHECK((series[1].verdict.outcome == "slow" || series[1].us.size() < 7));
}

TEST_CASE("worker: long launches are measured on a slice of the grid", "[autotune][worker]") {
  Bench bench;
  bench.workload = test::toy_add("slow", 512);
  bench.runner->begin(bench.op, bench.workload, 8192);
  const std::vector<Config> slow{config("slow", 16)};
  bench.runner->compile(slow);
  const auto brief = bench.runner->measure(slow, {16, 5, 5, 5, false})[0];
  const auto long_one = bench.runner->measure(slow, {8192, 5, 5, 5, false})[0];
  CHECK(long_one.sliced);
  // 512 times as many programs are scaled, not cut off.
  CHECK(median(long_one.us) > 100 * median(brief.us));
}

TEST_CASE("worker: a program that does not serve as a worker is named", "[autotune][worker]") {
  NoArtifacts artifacts;
  setenv("SEQTILE_WORKER", "/bin/true", 1);
  ProcessRunner runner("cpu", host_target(), "cold", artifacts);
  setenv("SEQTILE_WORKER", SEQTILE_TUNING_HELPER, 1);
  const OpDef op = test::toy_add_op();
  runner.begin(op, test::toy_add("plain"), 64);
  const std::vector<Config> plain{config("plain")};
  const auto count_open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto before = count_open();
  try {
    runner.compile(plain);
    FAIL("went on");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::unsupported);
    CHECK(std::string(error.what()).find("run_worker()") != std::string::npos);
  }
  CHECK(count_open() == before);
}

namespace {

constexpr int kMostPolls = 6000;  // of 20 ms

/// What a process has used; 0 where there is none, or one that nobody has collected.
double processor_seconds(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text, word;
  if (!std::getline(file, text)) return 0;
  std::istringstream words(text.substr(text.rfind(')') + 2));
  double ticks = 0;
  for (int i = 0; i < 11; ++i) {
    words >> word;
    if (i == 0 && word == "Z") return 0;
  }
  words >> ticks;
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// A process that `parent` has started and that has worked for a second; 0 where there is none.
pid_t working_child(pid_t parent) {
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", parent));
  for (pid_t child = 0; children >> child;)
    if (processor_seconds(child) >= 1) return child;
  return 0;
}

}  // namespace

TEST_CASE("worker: its process ends with the tuner's end of the connection", "[autotune][worker]") {
  setenv("SEQTILE_WORKER", SEQTILE_TUNING_HELPER, 1);
  // A worker in an endless kernel, whose tuner is gone: nobody kills it, so it must notice by itself.
  const pid_t tuner = fork();
  REQUIRE(tuner >= 0);
  if (tuner == 0) {
    NoArtifacts artifacts;
    ProcessRunner runner("cpu", host_target(), "cold", artifacts, {120, 600, 600});
    const OpDef op = test::toy_add_op();
    const Workload workload = test::toy_add("hang");
    runner.begin(op, workload, 64);
    const std::vector<Config> hang{config("hang")};
    runner.compile(hang);
    runner.check(hang[0]);
    _exit(0);
  }
  pid_t worker = 0;
  for (int i = 0; i < kMostPolls && (worker = working_child(tuner)) == 0; ++i) usleep(20'000);
  CHECK(worker != 0);
  kill(tuner, SIGKILL);
  waitpid(tuner, nullptr, 0);
  for (int i = 0; i < kMostPolls && processor_seconds(worker) > 0; ++i) usleep(20'000);
  CHECK(processor_seconds(worker) == 0);
}

TEST_CASE("worker: on a simulated GPU right and wrong candidates are told apart", "[autotune][worker][sim]") {
  Bench bench({30, 10, 20}, "sim:sm_80");
  bench.runner->begin(bench.op, bench.workload, 64);
  const Config plain = config("plain", 16);
  REQUIRE(bench.verify(plain).detail == "");
  CHECK(bench.runner->check_bucket(plain, bucket(64)).detail == "");
  const auto series = bench.runner->measure({&plain, 1}, {64, 5, 9, 1, false})[0];
  REQUIRE(series.verdict.ok());
  REQUIRE(series.us.size() >= 5);
  CHECK(series.us.front() > 0);
  CHECK(series.us.front() == series.us.back());  // times come from counters, not from a clock
  for (const auto& [form, outcome] : {std::pair{"wrong", "wrong_result"},
                                      {"unwritten", "wrong_result"},
                                      {"oob", "oob_write"},
                                      {"under", "oob_write"},
                                      {"dirty", "nondeterministic"}}) {
    INFO(form);
    CHECK(bench.verify(config(form)).outcome == outcome);
  }
}

TEST_CASE("worker: what a GPU refuses ends the process that owns it, and the next one takes over",
          "[autotune][worker][sim]") {
  Bench bench({30, 3, 20}, "sim:sm_80");
  bench.runner->begin(bench.op, bench.workload, 64);
  const Verdict verdict = bench.verify(config("segfault"));
  CHECK(verdict.outcome == "crash");
  CHECK(verdict.detail.find("out of bounds") != std::string::npos);
  CHECK(bench.verify(config("hang")).outcome == "hang");
  CHECK(bench.still_works());
}

TEST_CASE("worker: what ends a process while it counts costs no other candidate", "[autotune][worker][sim]") {
  Bench bench({30, 10, 20}, "h200");
  const CountTask lost{config("segfault"), bench.workload, 64}, plain{config("plain", 16), bench.workload, 64};
  const auto counted = bench.runner->count(std::vector<CountTask>{lost, lost, lost, lost, plain, plain, plain, plain});
  for (size_t i = 0; i < counted.size(); ++i) {
    INFO(i);
    CHECK(counted[i].verdict.ok() == (i >= 4));
    if (i < 4) CHECK_THAT(counted[i].verdict.detail, Catch::Contains("out of bounds"));
    else CHECK(counted[i].verdict.detail == "");
  }
  const std::vector<Config> next{config("plain", 32), config("plain", 64)};
  for (const Verdict& verdict : bench.runner->compile(next)) CHECK(verdict.detail == "");
}

TEST_CASE("worker: small calls are counted for a GPU that is not here", "[autotune][worker][sim]") {
  Bench bench({30, 10, 20}, "h200");
  const CountTask plain{config("plain", 16), bench.workload, 64}, wide{config("plain", 64), bench.workload, 64};
  const CountTask broken{config("build_throw"), bench.workload, 64}, lost{config("segfault"), bench.workload, 64};
  const auto counted = bench.runner->count(std::vector<CountTask>{plain, wide, broken, lost});
  REQUIRE(counted.size() == 4);
  REQUIRE(counted[0].verdict.detail == "");
  CHECK(counted[0].counts.warp_instructions > 0);
  // Sectors are read and written.
  const double sectors = 2 * 16 * static_cast<double>(bench.workload.fields.get_int("n")) * 4 / 32;
  CHECK(counted[0].counts.global_sectors == Approx(sectors));
  CHECK(counted[1].counts.global_sectors == Approx(4 * sectors));
  CHECK_FALSE(counted[2].verdict.ok());
  CHECK_FALSE(counted[3].verdict.ok());
  CHECK_FALSE(counted[3].verdict.detail.empty());
}
