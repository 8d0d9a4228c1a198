// tests/kernels/seqpar/fused_timeline_test.cpp -- the timeline of two ranks that communicate.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <tuple>

#include "seqtile/fabric.h"
#include "seqtile/operations.h"
#include "seqtile/ops/ranks.h"
#include "seqtile/seqpar.h"
#include "tests/support/kernels/compiled.h"
#include "tests/support/temp_folder.h"

using namespace seqtile;
using namespace seqtile::kernels;
using seqpar::FusedAllgatherAndLinear;
using seqpar::FusedHandle;
using seqpar::FusedLinearAndReducescatter;

namespace {

constexpr int kRanks = 2;
constexpr int64_t kHidden = 32, kWide = 48, kCapacity = 200;
const std::vector<int64_t> kLengths{200, 1, 0, 97};

using Events = std::vector<TimelineEvent>;

/// A rank's tensors on its device, filled with zeros.
struct Operands {
  explicit Operands(DeviceMemory& memory)
      : x(memory, 4 * kCapacity * kHidden),
        up(memory, 4 * kWide * kHidden),
        wide(memory, 4 * kCapacity * kWide),
        y(memory, 4 * kCapacity * kHidden) {
    for (const DeviceBuffer* buffer : {&x, &up, &wide, &y}) memory.fill(buffer->data(), 0, buffer->bytes());
  }
  DeviceBuffer x, up, wide, y;
};

Tensor matrix(const DeviceBuffer& buffer, int64_t rows, int64_t columns) {
  return make_tensor(buffer.data(), DType::f32, {rows, columns});
}

/// Runs both operations at every length on one rank. Returns the events that a ring for `num_events` kept.
Events run_rank(const std::string& folder, const autotune::Registry& registry, Fabric& fabric, int64_t num_events) {
  const auto engine = Engine::open({.threads = 1,
                                    .cache = folder + "/tuning.db",
                                    .artifacts = testing::shared_artifacts(),
                                    .policy = MissPolicy::fallback},
                                   registry, fabric);
  const FusedAllgatherAndLinear up{{.n = kWide, .k = kHidden}};
  const FusedLinearAndReducescatter down{{.n = kHidden, .k = kWide}};
  Channel channel(fabric, {.capacity = kCapacity});
  const FusedHandle up_layer(*engine, up, channel);
  const FusedHandle down_layer(*engine, down, channel);
  const Operands o(fabric.device().memory());
  const auto call = [&](int64_t length) {
    const int64_t own = (fabric.rank() + 1) * length / kRanks - fabric.rank() * length / kRanks;
    up_layer({.x = matrix(o.x, own, kHidden), .w = matrix(o.up, kWide, kHidden), .y = matrix(o.wide, length, kWide)},
             length);
    down_layer({.x = matrix(o.wide, length, kWide), .w = matrix(o.up, kHidden, kWide), .y = matrix(o.y, own, kHidden)},
               length);
  };
  Events events;
  {
    const Timeline timeline(channel, num_events);
    for (const int64_t length : kLengths) call(length);
    events = timeline.events();
  }
  call(kCapacity);  // the call has no timeline
  channel.check();
  fabric.all_gather("");
  return events;
}

std::vector<Events> run_ranks(std::vector<std::unique_ptr<Fabric>> fabrics, int64_t num_events) {
  const test::TempFolder folder;
  (void)testing::shared_artifacts();  // sets the environment before the ranks' threads start
  const autotune::Registry registry = make_registry();
  std::vector<Events> events(kRanks);
  std::vector<std::exception_ptr> errors(kRanks);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        events[rank] = run_rank(folder.path(), registry, *fabrics[rank], num_events);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return events;
}

using Flag = std::tuple<int64_t, int64_t, int64_t, int64_t>;  // epoch, phase, peer, chunk

std::map<Flag, int64_t> times_of(const Events& events, timeline::Kind kind) {
  std::map<Flag, int64_t> times;
  for (const TimelineEvent& e : events)
    if (e.kind == kind) times.try_emplace({e.epoch, e.phase, e.peer, e.chunk}, e.time_ns);
  return times;
}

/// Programs that send, in all launches together, by the configuration.
int push_programs(Fabric& fabric) {
  const FusedAllgatherAndLinear up{{.n = kWide, .k = kHidden}};
  const autotune::Registry registry = make_registry();
  const autotune::OpDef& op = registry.find("fused_allgather_and_linear");
  const Target& target = fabric.device().target();
  const autotune::Workload workload = op.normalize(up.workload(seqpar::ranks_of(fabric)));
  int64_t programs = 0;
  for (const int64_t length : kLengths)
    programs += op.default_config(workload, std::max<int64_t>(length, 1), target).get_int("push_programs");
  return static_cast<int>(programs);
}

/// Checks that each program has a begin and an end and each wait an arrival, in this order, and that all roles occur.
void check_order(const Events& events, int num_pushes) {
  std::map<std::pair<int64_t, int64_t>, int64_t> begins, waits;  // by epoch and program
  std::map<std::string, int> programs;
  for (const TimelineEvent& e : events) {
    const std::pair program{e.epoch, e.program};
    if (e.kind == timeline::begin) begins[program] = e.time_ns, ++programs[e.role];
    else if (!e.role.empty()) CHECK(begins.at(program) <= e.time_ns);  // a call of no rows sends outside of any role
    if (e.kind == timeline::end) begins.erase(program);
    if (e.kind == timeline::wait) waits[program] = e.time_ns;
    if (e.kind == timeline::arrive) CHECK(waits.at(program) <= e.time_ns);
  }
  CHECK(begins.empty());
  const auto launches = static_cast<int>(kLengths.size());
  CHECK(programs["push"] == num_pushes);
  CHECK(programs["last"] == 2 * launches);
  for (const char* role : {"use", "produce", "sum"}) CHECK(programs[role] > 0);
  CHECK(programs.size() == 5);
}

void check_flags(const Events& from, const Events& to, int64_t from_rank, int64_t to_rank) {
  const auto sent = times_of(from, timeline::publish), arrived = times_of(to, timeline::arrive);
  int64_t checked = 0;
  for (const auto& [flag, time] : sent) {
    const auto& [epoch, phase, peer, chunk] = flag;
    if (peer != to_rank) continue;
    INFO("epoch " << epoch << ", chunk " << chunk << " of rank " << from_rank << " at rank " << to_rank);
    REQUIRE(arrived.contains({epoch, phase, from_rank, chunk}));
    CHECK(time <= arrived.at({epoch, phase, from_rank, chunk}));
    ++checked;
  }
  CHECK(checked >= static_cast<int64_t>(2 * kLengths.size()));
}

void check_trace(const std::vector<Events>& events) {
  const auto trace = nlohmann::json::parse(chrome_trace(events));
  std::map<std::string, size_t> items;
  for (const auto& item : trace.at("traceEvents")) {
    const std::string kind = item.at("ph");
    ++items[kind];
    if (kind == "X") CHECK(item.at("dur") >= 0.0);
    if (kind != "M") CHECK(item.at("ts") >= 0.0);
    CHECK(item.at("pid") < kRanks);
  }
  size_t begins = 0, arrivals = 0, publishes = 0, to_peers = 0;
  for (size_t rank = 0; rank < events.size(); ++rank)
    for (const TimelineEvent& e : events[rank])
      to_peers += e.kind == timeline::publish && e.peer != static_cast<int64_t>(rank),
          begins += e.kind == timeline::begin, arrivals += e.kind == timeline::arrive,
          publishes += e.kind == timeline::publish;
  CHECK(items["M"] == kRanks);
  CHECK(items["X"] == begins + arrivals);
  CHECK(items["i"] == publishes);
  CHECK(items["s"] == publishes);
  CHECK(items["f"] >= to_peers);  // each flag for a peer ends a wait
}

/// Checks that each span has a rectangle and each flag that ends a wait a line.
void check_picture(const std::vector<Events>& events) {
  const std::string picture = timeline_svg(events);
  const auto count = [&](const std::string& text) {
    size_t found = 0;
    for (size_t at = picture.find(text); at != std::string::npos; at = picture.find(text, at + 1)) ++found;
    return found;
  };
  size_t spans = 0;
  for (const Events& rank : events)
    for (const TimelineEvent& e : rank) spans += e.kind == timeline::begin || e.kind == timeline::arrive;
  CHECK(count("<title>rank ") == spans);
  CHECK(count("<title>rank 1, epoch 1, program 0: push") == 1);
  CHECK(count("stroke=\"#303030\"") >= 2 * kLengths.size());
  CHECK(picture.find("nan") == std::string::npos);
  CHECK(picture.ends_with("</svg>\n"));
}

void check_timeline(std::vector<std::unique_ptr<Fabric>> fabrics) {
  const int num_pushes = push_programs(*fabrics[0]);
  CHECK(num_pushes >= std::ssize(kLengths));
  const std::vector<Events> events = run_ranks(std::move(fabrics), 100000);
  for (const Events& rank : events) check_order(rank, num_pushes);
  check_flags(events[0], events[1], 0, 1);
  check_flags(events[1], events[0], 1, 0);
  check_trace(events);
  check_picture(events);
}

}  // namespace

TEST_CASE("timeline: what is sent comes before what arrives, on threads", "[seqpar][sweep]") {
  check_timeline(make_thread_fabric(kRanks));
}

TEST_CASE("timeline: the same on simulated GPUs", "[seqpar][sim]") {
  for (const char* target : {"sm_80", "sm_90a"}) check_timeline(make_sim_fabric(target, kRanks));
}

TEST_CASE("timeline: the same on ranks that share a simulated GPU", "[seqpar][sim]") {
  check_timeline(make_virtual_fabric(open_device("sim:sm_80", 1), kRanks));
}

TEST_CASE("timeline: a small ring keeps the newest events", "[seqpar][sweep]") {
  for (const Events& events : run_ranks(make_thread_fabric(kRanks), 5)) {
    REQUIRE(events.size() == 5);
    CHECK(events.back().kind == timeline::end);
    CHECK(events.back().role == "last");
    CHECK(events.front().epoch == static_cast<int64_t>(2 * kLengths.size()));
    CHECK_NOTHROW(nlohmann::json::parse(chrome_trace({&events, 1})));
  }
  auto fabrics = make_thread_fabric(1);
  Channel channel(*fabrics[0], {.capacity = 1});
  CHECK_THROWS_WITH(Timeline(channel, 0), Catch::Contains("a timeline of 0 events"));
}
