// tests/kernels/seqpar/exchange/flag_trace_test.cpp -- traces of flags that the protocol's model takes or refuses.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/support/protocol/protocol_path.h"
#include "tests/support/ranks/collective_run.h"

using namespace seqtile;
using namespace seqtile::testing;
using test::FlagEvent;
using Kind = FlagEvent::Kind;
using kernels::seqpar::ExchangeShape;
using kernels::seqpar::PhaseShape;

namespace {

struct Trace {
  const Protocol* protocol;
  ExchangeShape shape;
  std::vector<int64_t> lengths;
  std::vector<FlagEvent> events;

  std::string refusal() const { return test::path_refusal(*protocol, shape, lengths, events); }
  /// Index of the first event from `from` on for which `is` holds.
  template <class Is>
  size_t find(const Is& is, size_t from = 0) const {
    const auto found = std::find_if(events.begin() + static_cast<std::ptrdiff_t>(from), events.end(), is);
    REQUIRE(found != events.end());
    return static_cast<size_t>(found - events.begin());
  }
  void move(size_t from, size_t to) {
    const FlagEvent event = events[from];
    events.erase(events.begin() + static_cast<std::ptrdiff_t>(from));
    events.insert(events.begin() + static_cast<std::ptrdiff_t>(to), event);
  }
};

bool is_of(const FlagEvent& event, Kind kind, int rank, int64_t call) {
  return event.kind == kind && event.rank == rank && event.call == call;
}

/// A trace by hand: two calls of a gather, of 32 rows and of 1, in chunks of 8, with rank 0 always first.
Trace gather_by_hand() {
  const ExchangeShape shape{2, 0, {{PhaseShape::Rows::of_source, DType::f32, 8, 8}}};
  Trace trace{&gather_protocol(), shape, {32, 1}, {}};
  for (int64_t call = 0; call < 2; ++call) {
    for (const Kind kind : {Kind::publish, Kind::acquire})
      for (int rank = 0; rank < 2; ++rank)
        for (int64_t chunk = 0; chunk < (call == 0 ? 2 : 1); ++chunk)
          trace.events.push_back({kind, rank, 1 - rank, 0, chunk, call});
    for (int rank = 0; rank < 2; ++rank) trace.events.push_back({Kind::end, rank, -1, 0, 0, call});
  }
  return trace;
}

}  // namespace

TEST_CASE("flag trace: a kernel's trace without one of its flags or epochs, or with a late one, is refused",
          "[seqpar][sim]") {
  CollectiveRun run("all_reduce", {{"n", int64_t{37}}}, 3, DType::bf16, "two_shot");
  const auto flags = run.on({.device = "sim:sm_80", .seed = 1}).flags;
  Trace good{&flags->protocol(), flags->shape(), flags->lengths(), flags->events()};
  REQUIRE(good.refusal() == "");
  for (size_t i = 0; i < good.events.size(); i += 5) {
    const FlagEvent& event = good.events[i];
    if (event.kind == Kind::acquire) continue;  // other programs acquire the flag too
    INFO(event.text());
    Trace trace = good;
    trace.events.erase(trace.events.begin() + static_cast<std::ptrdiff_t>(i));
    CHECK(trace.refusal() != "");
    trace = good;
    trace.move(i, trace.events.size() - 1);
    CHECK((trace.refusal() != "" || event.call + 1 == std::ssize(kLengths)));
  }
}

TEST_CASE("flag trace: events in another order are refused", "[seqpar]") {
  const Trace good = gather_by_hand();
  REQUIRE(good.refusal() == "");
  const size_t sent = good.find([](const auto& e) { return is_of(e, Kind::publish, 0, 0); });
  const size_t seen = good.find([](const auto& e) { return is_of(e, Kind::acquire, 1, 0); });
  const size_t end = good.find([](const auto& e) { return is_of(e, Kind::end, 1, 0); });
  const size_t next = good.find([](const auto& e) { return is_of(e, Kind::publish, 1, 1); });

  Trace trace = good;
  trace.move(seen, sent);
  CHECK_THAT(trace.refusal(), Catch::Contains("rank 1 sees of rank 0") && Catch::Contains("no such flag there"));
  trace = good;
  trace.move(end, seen);
  CHECK_THAT(trace.refusal(), Catch::Contains("rank 1 ends call 0: it has not seen the flag of rank 0"));
  trace = good;
  trace.move(next, end);
  CHECK_THAT(trace.refusal(), Catch::Contains("call 1: the rank is in call 0"));
  trace = good;
  trace.move(end, sent);
  CHECK_THAT(trace.refusal(), Catch::Contains("it has not sent a flag to rank 0"));
}

TEST_CASE("flag trace: flags that are missing, doubled, of another call or of another chunk are refused", "[seqpar]") {
  const Trace good = gather_by_hand();
  for (size_t i = 0; i < good.events.size(); ++i) {
    INFO(good.events[i].text());
    Trace trace = good;
    trace.events.erase(trace.events.begin() + static_cast<std::ptrdiff_t>(i));
    CHECK(trace.refusal() != "");
    trace = good;
    for (const int64_t call : {-1, 1, 2}) {
      trace.events[i].call = good.events[i].call + call;
      CHECK(trace.refusal() != "");
    }
    trace = good;
    trace.events[i].kind = Kind::stray;
    CHECK(trace.refusal() != "");
    if (good.events[i].kind == Kind::end) continue;
    trace = good;
    trace.events[i].chunk = 2;
    CHECK(trace.refusal() != "");
    trace = good;
    trace.events.insert(trace.events.begin() + static_cast<std::ptrdiff_t>(i), good.events[i]);
    CHECK((trace.refusal() == "") == (good.events[i].kind == Kind::acquire));  // any program may acquire a flag
  }
}

TEST_CASE("flag trace: a second phase before the first is refused, but for ranks without rows", "[seqpar]") {
  const PhaseShape own{PhaseShape::Rows::of_owner, DType::f32, 8, 16},
      others{PhaseShape::Rows::of_source, DType::f32, 8, 16};
  const auto with = [](Kind kind, int rank, int phase) { return FlagEvent{kind, rank, 1 - rank, phase, 0, 0}; };
  std::vector<FlagEvent> events{with(Kind::publish, 0, 0), with(Kind::publish, 0, 1), with(Kind::publish, 1, 0),
                                with(Kind::acquire, 1, 0), with(Kind::publish, 1, 1)};
  for (int rank = 0; rank < 2; ++rank) {
    for (int phase = 0; phase < 2; ++phase) events.push_back(with(Kind::acquire, rank, phase));
    events.push_back({Kind::end, rank});
  }
  // Rank 0 of two owns no row of a single row.
  CHECK(Trace{&two_shot_protocol(), {2, 0, {own, others}}, {1}, events}.refusal() == "");
  CHECK_THAT((Trace{&two_shot_protocol(), {2, 0, {own, others}}, {2}, events}.refusal()),
             Catch::Contains("rank 0 sends to rank 1 the flag of chunk 0 in phase 1") &&
                 Catch::Contains("something else before"));
  std::swap(events[1], events[2]);
  events.insert(events.begin() + 2, with(Kind::acquire, 0, 0));
  CHECK((Trace{&two_shot_protocol(), {2, 0, {own, others}}, {2}, events}.refusal()) == "");
  CHECK((Trace{&gather_beside_reduce_scatter_protocol(), {2, 0, {others, own}}, {2}, events}.refusal()) == "");
}
