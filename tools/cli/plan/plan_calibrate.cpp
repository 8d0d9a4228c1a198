// tools/cli/plan/plan_calibrate.cpp -- `seqtile plan calibrate`: measures and writes the file for --calibration.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/cli/output.h"
#include "tools/cli/plan/calibrate.h"
#include "tools/cli/plan/plan.h"

namespace seqtile::cli {
namespace {

/// Root mean square of the relative errors above which alpha and beta describe the measured times badly.
constexpr double kBadResidual = 0.5;

/// Prints progress on standard error.
void note(const std::string& line) { fmt::print(stderr, "calibrate: {}\n", line); }

/// Ranks of each mesh axis. Errors: bad input.
std::vector<int> axes_of(const PlanOptions& options) {
  if (options.mesh.empty()) {
    const int ranks = world_of(options.pricing.records)->size;
    if (ranks == 1) bad_input("--ranks 1: one rank sends nothing; give two or more");
    return {ranks};
  }
  const planner::Mesh mesh = parse_mesh(options.mesh);
  std::vector<int> axes(mesh.shape.begin(), mesh.shape.begin() + mesh.num_axes);
  if (std::ranges::find(axes, 1) != axes.end())
    bad_input(fmt::format("--mesh {}: an axis of one rank sends nothing, so that nothing can be measured; leave it out",
                          options.mesh));
  if (mesh.devices(mesh.all()) > channel::kMaxRanks)
    bad_input(
        fmt::format("--mesh {}: {} ranks, a fabric has at most {}; measure a smaller mesh: alpha is per "
                    "message, beta per byte",
                    options.mesh, mesh.devices(mesh.all()), channel::kMaxRanks));
  return axes;
}

void check_fabric(const Options& options) {
  if (options.fabric == "threads" || options.fabric == "processes") return;
  bad_input(
      fmt::format("--fabric {}: calibrate measures CPU ranks on the host's clock; use threads or processes, and "
                  "write the file of other devices by hand (docs/plan_format.md)",
                  options.fabric));
}

CalibrationSetup setup_of(const Options& options, int ranks) {
  CalibrationSetup setup{options.fabric, one_thread_count(options), DType::f32, options.cache, options.artifacts};
  if (!options.dtype.empty()) setup.dtype = parse_dtype_flag(options.dtype);
  const int cores = cores_available();
  if (ranks * setup.threads > cores)
    warn(fmt::format("{} ranks of {} on {}: the ranks take turns, so that all times are longer than with a core each",
                     ranks, format_counted(setup.threads, "thread"), format_counted(cores, "core")));
  return setup;
}

planner::LinkFit measure_links(const Session& session, const CalibrationSetup& setup, int ranks) {
  const std::vector<planner::GatherTime> times = time_gathers(session, setup, ranks);
  const planner::LinkFit fit = planner::fit_links(ranks, times);
  for (const planner::GatherTime& time : times) {
    const double model = (ranks - 1) * (fit.alpha + time.bytes / ranks * fit.beta);
    note(fmt::format("{} ranks, all-gather of {} a rank: {}, by the fit {}", ranks, format_bytes(time.bytes / ranks),
                     format_us(1e6 * time.seconds), format_us(1e6 * model)));
  }
  if (fit.residual > kBadResidual)
    warn(
        fmt::format("{} ranks: with alpha {:.3g} s and beta {:.3g} s the model is {:.0f} % off the times measured "
                    "(root mean square): other programs ran, or the large sizes exceed the caches; the lines above "
                    "show which sizes differ; run again while no other program runs",
                    ranks, fit.alpha, fit.beta, 100 * fit.residual));
  return fit;
}

planner::Calibration measure(const Session& session, const CalibrationSetup& setup, const std::vector<int>& axes,
                             int ranks) {
  planner::Calibration calibration;
  planner::Measured measured{{}, setup.fabric, axes, setup.threads, std::string(dtype_name(setup.dtype)), {}};
  std::map<int, planner::LinkFit> fits;  // axes with equally many ranks are the same ranks here
  for (const int axis : axes) {
    if (!fits.contains(axis)) fits[axis] = measure_links(session, setup, axis);
    calibration.alpha.push_back(fits[axis].alpha);
    calibration.beta.push_back(fits[axis].beta);
    measured.residual.push_back(fits[axis].residual);
  }
  const DeviceMeasurement device = measure_device(session, setup, ranks);
  calibration.device = device.facts;
  calibration.overlap_slowdown = 2;  // ranks on CPUs send with the cores that compute
  measured.machine = device.machine;
  note(fmt::format("{} ranks at once, each: {:.1f} GFLOP/s of products, {:.1f} GB/s of memory, {} a kernel of one row",
                   ranks, 1e-9 * device.facts.peak_flops, 1e-9 * device.facts.bandwidth,
                   format_us(1e6 * device.facts.launch_s)));
  calibration.measured = std::move(measured);
  return calibration;
}

}  // namespace

void add_calibrate_flags(CLI::App& command, PlanOptions& options) {
  Options& records = options.pricing.records;
  records.fabric = "threads";
  CLI::Option& mesh =
      *command.add_option("--mesh", options.mesh, "Ranks of each axis, as in 2x2: each axis has links of its own");
  mesh.type_name("SIZES");
  command.add_option("--ranks", records.ranks, "Ranks of a mesh of one axis (default: 2)")
      ->type_name("P")
      ->excludes(&mesh);
  command.add_option("--fabric", records.fabric, "Kind of ranks: threads or processes")
      ->type_name("F")
      ->capture_default_str();
  command.add_option("--threads", records.threads, "Threads of a rank (default: the cores, divided among the ranks)")
      ->type_name("N");
  command.add_option("--dtype", records.dtype, "f32, bf16 or f16 (default: f32)")->type_name("DTYPE");
  add_stores(command, records);
  command.add_option("-o,--output", options.out, "File for the calibration (default: -, standard output)")
      ->type_name("FILE");
}

/// Refuses paths that can be no stores before anything is measured. Makes an absent --cache, without records.
void prepare_stores(const Options& options) {
  check_stores_of(options);
  if (!options.cache.empty() && !std::filesystem::exists(options.cache)) open_store_of(options, StoreUse::write);
}

int run_calibrate(const Session& session, const PlanOptions& given) {
  PlanOptions options = given;
  Options& records = options.pricing.records;
  check_fabric(records);
  if (records.ranks.empty() && options.mesh.empty()) records.ranks = "2";
  const std::vector<int> axes = axes_of(options);
  int ranks = 1;
  for (const int axis : axes) ranks *= axis;
  records.ranks = std::to_string(ranks);
  apply_ranks(records);
  const CalibrationSetup setup = setup_of(records, ranks);
  const bool is_for_stdout = options.out.empty() || is_standard_output(options.out);
  if (!is_for_stdout) check_can_write("--output", options.out);
  prepare_stores(records);
  const planner::Calibration calibration = measure(session, setup, axes, ranks);
  const std::string text = planner::calibration_json(calibration);
  if (!is_for_stdout) write_file("--output", options.out, text);
  else if (!options.json) print_text(text);
  if (options.json) print_json(Json::parse(text));
  return kDone;
}

}  // namespace seqtile::cli
