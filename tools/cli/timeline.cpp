// tools/cli/timeline.cpp -- `seqtile trace`: calls of a fused operation on several ranks, as a picture of who waits.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "autotune/engine.h"
#include "autotune/worker/problem.h"
#include "jit/timeline.h"
#include "kernels/seqpar/fused_handle.h"
#include "kernels/seqpar/fused_op.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/ranks.h"

namespace seqtile::cli {
namespace {

constexpr int64_t kMaxEvents = int64_t{1} << 20;

struct TimelineOptions : Options {
  int calls = 3;
  std::string out = "trace.json";
};

/// The tensors of a rank's call, with random values.
class Operands {
 public:
  Operands(const autotune::OpDef& op, const autotune::Workload& workload, int64_t length, Channel& channel) {
    const autotune::Schema schema = op.schema(workload);
    std::vector<int64_t> symbols = autotune::call_symbols(op, workload, schema, length);
    const auto own = std::ranges::find(schema.symbols, "own_rows") - schema.symbols.begin();
    if (own < std::ssize(schema.symbols))
      symbols[static_cast<size_t>(own)] = kernels::seqpar::own_rows(workload, channel.fabric().rank(), length);
    for (const autotune::ArgSpec& arg : schema.args)
      if (!is_of_channel(arg)) add(channel.fabric().device(), autotune::describe_arg(arg, schema, symbols));
    for (const Tensor& tensor : channel.tensors()) tensors_.push_back(tensor);
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  void add(Device& device, Tensor tensor) {
    const size_t bytes = autotune::tensor_bytes(tensor);
    const autotune::Pages values(bytes);
    autotune::fill_normal(values.data(), tensor.dtype, bytes / static_cast<size_t>(dtype_bytes(tensor.dtype)), 1, 1);
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
  Channel channel(fabric, kernels::seqpar::channel_options({workload}, length));
  const int64_t number = channel.add_operation();
  const Handle handle = kernels::seqpar::prepare_on_all(*engine, workload, channel, number);
  const Operands operands(session.registry.find(options.operation), workload, length, channel);
  const auto call = [&] { handle(operands.tensors(), length, {&number, 1}); };
  call();  // the system's first visit to a page is no part of the picture
  const Timeline timeline(channel, kMaxEvents);
  fabric.all_gather("");
  for (int i = 0; i < options.calls; ++i) call();
  std::vector<TimelineEvent> events = timeline.events();
  check_aborted(channel);
  fabric.all_gather("");  // peers may still store flags here
  return events;
}

int run(const Session& session, const TimelineOptions& given) {
  TimelineOptions options = given;
  if (options.ranks.empty()) options.ranks = "2";
  const World world = *world_of(options);
  options.set.push_back(fmt::format("world_size={}", world.size));
  options.set.push_back("fabric=" + world.fabric);
  const autotune::Workload workload = workload_of(session.registry, options, 1);
  const int64_t length = parse_length("--length", options.length);
  std::vector<std::vector<TimelineEvent>> events(static_cast<size_t>(world.size));
  on_every_rank(world, 1, [&](Fabric& fabric) {
    events[static_cast<size_t>(fabric.rank())] = run_rank(session, options, workload, length, fabric);
  });
  const bool is_picture = options.out.ends_with(".svg");
  write_file("--output", options.out, is_picture ? timeline_svg(events) : chrome_trace(events));
  size_t count = 0;
  for (const auto& rank : events) count += rank.size();
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

}  // namespace

void add_trace(CLI::App& app, Session& session) {
  auto options = std::make_shared<TimelineOptions>();
  CLI::App& command = add_command(
      app, session, "trace",
      "Run a fused operation on several ranks and draw when each of them computes, sends and waits",
      "  seqtile trace fused_allgather_and_linear --set n=512 --set k=512 --ranks 2 --length 1024 -o trace.json\n"
      "  seqtile trace fused_linear_and_reducescatter --set n=64 --set k=64 --fabric sim:sm_80 --length 100",
      options, run);
  add_operation(command, *options);
  command.add_option("--dtype", options->dtype, "f32, bf16 or f16")->type_name("T");
  add_length(command, *options);
  command.get_option("--length")->required();
  add_stores(command, *options);
  add_ranks(command, *options);
  command.add_option("--calls", options->calls, "How many calls (default: 3)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  command.add_option("-o,--output", options->out, "The file (default: trace.json); .svg: a picture")->type_name("FILE");
}

}  // namespace seqtile::cli
