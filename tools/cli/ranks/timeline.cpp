// tools/cli/ranks/timeline.cpp -- `seqtile timeline`: draws the waits of ranks in calls of a fused operation.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>

#include "autotune/call/call_values.h"
#include "autotune/call/problem.h"
#include "autotune/call_sizes.h"
#include "kernels/seqpar/prepare.h"
#include "seqtile/engine.h"
#include "seqtile/fabric.h"
#include "seqtile/seqpar.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/ranks/ranks.h"

namespace seqtile::cli {
namespace {

constexpr int64_t kMaxEvents = int64_t{1} << 20;

struct TimelineOptions : Options {
  int calls = 3;
  std::string out = "timeline.json";
};

/// The tensors of a rank's call, filled at random.
class Operands {
 public:
  Operands(const autotune::OpDef& op, const autotune::Workload& workload, int64_t length, Channel& channel) {
    const autotune::Schema schema = op.schema(workload);
    const std::vector<int64_t> symbols = op.on_rank(workload, channel.fabric().rank(), length).symbols;
    for (const autotune::ArgSpec& arg : schema.args)
      if (!is_of_channel(arg)) add(channel.fabric().device(), autotune::describe_arg(arg, schema, symbols));
    for (const Tensor& tensor : channel.tensors()) tensors_.push_back(tensor);
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  void add(Device& device, Tensor tensor) {
    const size_t bytes = autotune::tensor_bytes(tensor);
    const autotune::Pages values(bytes);
    tensor.data = values.data();
    autotune::fill_repeating(tensor, 1, 1);
    buffers_.emplace_back(device.memory(), std::max<size_t>(bytes, 1));
    tensor.data = buffers_.back().data();
    device.memory().copy(tensor.data, values.data(), bytes);
    device.streams().synchronize({});
    tensors_.push_back(tensor);
  }
  std::deque<DeviceBuffer> buffers_;
  std::vector<Tensor> tensors_;
};

std::vector<TimelineEvent> run_rank(const Session& session, const TimelineOptions& options,
                                    const autotune::Workload& workload, int64_t length, Fabric& fabric) {
  const auto engine =
      Engine::open({.threads = 1, .cache = options.cache, .artifacts = options.artifacts}, session.registry, fabric);
  Channel channel(fabric, ChannelOptions{.capacity = length, .agreed = {{"--calls", std::to_string(options.calls)}}});
  const int64_t op_id = channel.add_operation(workload.operation);
  const autotune::OpDef& op = session.registry.find(options.operation);
  const Handle handle = kernels::seqpar::prepare_on_all(*engine, workload, op.shares, channel, op_id);
  const Operands operands(op, workload, length, channel);
  const auto call = [&] { handle(operands.tensors(), length, {&op_id, 1}); };
  call();  // the first touch of memory pages stays out of the picture
  const Timeline timeline(channel, kMaxEvents);
  fabric.all_gather("");
  for (int i = 0; i < options.calls; ++i) call();
  std::vector<TimelineEvent> events = timeline.events();
  channel.check();
  fabric.all_gather("");  // peers may still store flags in this rank's memory
  return events;
}

/// The events of all ranks. Collective.
std::vector<std::vector<TimelineEvent>> events_of_ranks(Fabric& fabric, const std::vector<TimelineEvent>& mine) {
  Json own = Json::array();
  for (const TimelineEvent& e : mine)
    own.push_back({e.time_ns, e.epoch, e.role, static_cast<int64_t>(e.kind), e.phase, e.peer, e.chunk, e.program});
  std::vector<std::vector<TimelineEvent>> all;
  for (const std::string& text : fabric.all_gather(own.dump())) {
    std::vector<TimelineEvent>& theirs = all.emplace_back();
    for (const Json& e : Json::parse(text))
      theirs.push_back({e[0], e[1], e[2], static_cast<timeline::Kind>(e[3].get<int64_t>()), e[4], e[5], e[6], e[7]});
  }
  return all;
}

int draw(const Session& session, TimelineOptions& options) {
  const World world = *world_of(options);
  refuse_rank_fields(options);
  options.set.push_back(fmt::format("world_size={}", world.size));
  options.set.push_back("fabric=" + world.fabric);
  const autotune::Workload workload = workload_of(session.registry, options, 1);
  const int64_t length = parse_length("--length", options.length);
  autotune::check_memory(session.registry.find(options.operation), workload, length);
  const bool is_writer = !world.process || world.process->rank() == 0, is_for_stdout = is_standard_output(options.out);
  if (is_writer && !is_for_stdout) check_can_write("--output", options.out);
  check_stores_of(options);
  std::vector<std::vector<TimelineEvent>> events;
  on_every_rank(world, 1, [&](Fabric& fabric) {
    auto all = events_of_ranks(fabric, run_rank(session, options, workload, length, fabric));
    if (speaks_for_process(world, fabric)) events = std::move(all);
  });
  const bool is_picture = options.out.ends_with(".svg");
  const std::string text = is_writer ? is_picture ? timeline_svg(events) : chrome_trace(events) : "";
  if (is_for_stdout) print_text(text + "\n");
  else if (is_writer) write_file("--output", options.out, text);
  size_t count = 0;
  for (const auto& rank : events) count += rank.size();
  if (!is_for_stdout)
    print_line(fmt::format("{}: {} of {} ranks; {} opens it", options.out,
                           format_counted(static_cast<int64_t>(count), "event"), world.size,
                           is_picture ? "a browser" : "https://ui.perfetto.dev"));
  if (options.json)
    print_json({{"operation", options.operation},
                {"ranks", world.size},
                {"fabric", world.fabric},
                {"length", length},
                {"calls", options.calls},
                {"events", count},
                {"file", options.out}});
  return kDone;
}

int run(const Session& session, const TimelineOptions& given) {
  TimelineOptions options = given;
  if (!session.registry.find(options.operation).on_rank)
    bad_input(
        fmt::format("timeline {}: the operation does not communicate; name one that does, for example "
                    "fused_allgather_and_linear",
                    options.operation));
  if (options.ranks.empty() && options.fabric != "mpi") options.ranks = "2";
  enter_processes(options);
  return run_on_processes(options, [&] { return draw(session, options); });
}

}  // namespace

void add_timeline(CLI::App& app, Session& session) {
  auto options = std::make_shared<TimelineOptions>();
  CLI::App& command = add_command(
      app, session, "timeline",
      "Run a fused operation on several ranks and draw when each rank computes, sends and waits",
      "  seqtile timeline fused_allgather_and_linear --set n=512 --set k=512 --ranks 2 --length 1024 -o timeline.json\n"
      "  seqtile timeline fused_linear_and_reducescatter --set n=64 --set k=64 --fabric sim:sm_80 --length 100",
      options, run);
  add_operation(command, *options);
  command.add_option("--dtype", options->dtype, "f32, bf16 or f16")->type_name("T");
  add_length(command, *options);
  command.get_option("--length")->required();
  add_stores(command, *options);
  add_ranks(command, *options);
  command.add_option("--calls", options->calls, "Number of calls (default: 3)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  command
      .add_option("-o,--output", options->out, "The file (default: timeline.json); .svg: a picture; -: standard output")
      ->type_name("FILE");
}

}  // namespace seqtile::cli
