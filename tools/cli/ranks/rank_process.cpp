// tools/cli/ranks/rank_process.cpp -- see rank_process.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/ranks/rank_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "jit/base/spawn.h"
#include "seqtile/mpi_fabric.h"
#include "tools/cli/errors.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

constexpr std::string_view kWorld = "world ", kOutcome = "outcome ";  // first word of a text that ranks exchange

/// Time for a rank that its peers have given up, before it is taken for dead.
constexpr auto kGrace = std::chrono::seconds(5);

struct OpenFile {
  int descriptor = -1;
  ~OpenFile() {
    if (descriptor >= 0) close(descriptor);
  }
};

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

pid_t start_copy(int rank, int descriptor) {
  std::vector<std::string> arguments = own_arguments();
  arguments.insert(arguments.end(), {RankProcess::kFlag, fmt::format("{}:{}", rank, descriptor)});
  pid_t pid = 0;
  const int failed = spawn({.program = "/proc/self/exe", .arguments = arguments, .descriptors = {descriptor}}, pid);
  if (failed)
    throw Error(ErrorCode::out_of_resources,
                fmt::format("no process for rank {}: {}; use fewer ranks", rank, std::strerror(failed)));
  return pid;
}

/// Waits for a copy to end, and kills it after kGrace.
void end(pid_t pid) {
  const auto start = std::chrono::steady_clock::now();
  while (waitpid(pid, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() - start > kGrace) kill(pid, SIGKILL);
    usleep(1000);
  }
}

/// The result of a rank's command.
struct Outcome {
  int exit_code = kDone;
  std::optional<Error> error;
};

std::string text_of(const Outcome& outcome) {
  Json json = {{"exit_code", outcome.exit_code}};
  if (outcome.error) json["error"] = outcome.error->code(), json["message"] = outcome.error->what();
  return std::string(kOutcome) + json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Outcome outcome_of(const std::string& text) {
  const Json json = Json::parse(text.substr(kOutcome.size()));
  Outcome outcome{json["exit_code"], std::nullopt};
  if (json.contains("error")) outcome.error = Error(json["error"].get<ErrorCode>(), json["message"].get<std::string>());
  return outcome;
}

Outcome outcome_of(const std::function<int()>& command) {
  try {
    return {command(), std::nullopt};
  } catch (const Error& error) {
    return {kNo, error};
  } catch (const std::bad_alloc&) {
    return {kNo, Error(ErrorCode::out_of_resources, "out of memory; use shorter lengths or fewer ranks")};
  } catch (const std::exception& error) {
    return {kNo, Error(ErrorCode::internal, fmt::format("unexpected: {}", error.what()))};
  }
}

/// The outcome that says most: an error other than a complaint about another rank, else any error, else a nonzero code.
Outcome worst_of(const std::vector<Outcome>& outcomes) {
  const auto weight = [](const Outcome& outcome) {
    if (outcome.error) return outcome.error->code() == ErrorCode::aborted ? 2 : 3;
    return outcome.exit_code != kDone ? 1 : 0;
  };
  return *std::ranges::max_element(outcomes, {}, weight);
}

/// Returns the outcome for all ranks. Collective. A rank that still wants a fabric learns here that another rank has
/// ended, and calls again.
Outcome exchange_outcomes(Fabric& fabric, const Outcome& own) {
  std::vector<std::string> texts;
  const auto has_ended = [](const std::string& text) { return text.starts_with(kOutcome); };
  if (own.error && own.error->code() == ErrorCode::timeout) fabric.set_timeout(kGrace);
  try {
    do texts = fabric.all_gather(text_of(own));
    while (!std::ranges::all_of(texts, has_ended));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::timeout && own.error) return own;
    return {kMachine, Error(ErrorCode::out_of_resources,
                            fmt::format("the process of a rank has ended early: {}; check whether memory has run out",
                                        own.error ? own.error->what() : error.what()))};
  }
  std::vector<Outcome> outcomes;
  for (const std::string& text : texts) outcomes.push_back(outcome_of(text));
  return worst_of(outcomes);
}

}  // namespace

RankProcess::RankProcess(std::unique_ptr<Fabric> fabric, bool is_copy) : fabric_(std::move(fabric)), is_copy_(is_copy) {
  if (rank() != 0 && !std::freopen("/dev/null", "w", stdout))
    throw Error(ErrorCode::io, "/dev/null cannot be opened; check the limits of the system");
}

RankProcess::~RankProcess() {
  fabric_.reset();  // releases the ranks that still wait for this rank
  for (const pid_t pid : copies_) end(pid);
}

std::shared_ptr<RankProcess> RankProcess::of_mpi() {
  // The library is never closed: MPI ends with the process. MPI's plug-ins look for its symbols among the global ones.
  void* library = dlopen(kMpiLibrary, RTLD_NOW | RTLD_GLOBAL);
  const auto* join_fabric = library ? static_cast<JoinMpiFabric*>(dlsym(library, kMpiJoinSymbol)) : nullptr;
  if (!join_fabric)
    throw Error(
        ErrorCode::driver,
        fmt::format("--fabric mpi: this build is without MPI ({}); build seqtile where MPI is installed, or use "
                    "--fabric processes",
                    dlerror()));
  const auto join = [join = *join_fabric](int threads) { return join(threads, std::chrono::seconds(60), 0); };
  std::shared_ptr<RankProcess> process(new RankProcess(join(1), false));
  process->join_by_mpi_ = join;
  return process;
}

std::shared_ptr<RankProcess> RankProcess::start(int world_size) {
  const OpenFile world{make_process_world(world_size)};
  std::vector<pid_t> copies;
  for (int rank = 1; rank < world_size; ++rank) copies.push_back(start_copy(rank, world.descriptor));
  std::shared_ptr<RankProcess> process(new RankProcess(join_process_fabric(world.descriptor, 0), false));
  process->copies_ = std::move(copies);
  return process;
}

std::shared_ptr<RankProcess> RankProcess::join(const std::string& place) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // copies end with rank 0, even if Ctrl-C ends it
  OpenFile world;
  int rank = 0;
  if (std::sscanf(place.c_str(), "%d:%d", &rank, &world.descriptor) != 2)
    bad_input(fmt::format("{} {}: seqtile gives this to the ranks that it starts; use --ranks", kFlag, place));
  return std::shared_ptr<RankProcess>(new RankProcess(join_process_fabric(world.descriptor, rank), true));
}

// Rank 0 makes the shared memory. The other ranks open it through rank 0's descriptor in /proc. MPI has its own way.
std::unique_ptr<Fabric> RankProcess::make_fabric(int threads) {
  OpenFile world;
  if (rank() == 0 && !join_by_mpi_) world.descriptor = make_process_world(world_size());
  const std::string place = fmt::format("/proc/{}/fd/{}", getpid(), world.descriptor);
  const std::vector<std::string> texts = fabric_->all_gather(std::string(kWorld) + place);
  for (size_t peer = 0; peer < texts.size(); ++peer)
    if (!texts[peer].starts_with(kWorld)) throw Error(ErrorCode::aborted, fmt::format("rank {} has ended", peer));
  if (join_by_mpi_) return join_by_mpi_(threads);
  if (rank() != 0) world.descriptor = open(texts[0].substr(kWorld.size()).c_str(), O_RDWR | O_CLOEXEC);
  return join_process_fabric(world.descriptor, rank(), threads);
}

int RankProcess::run(const std::function<int()>& command) {
  const Outcome worst = exchange_outcomes(*fabric_, outcome_of(command));
  if (!worst.error) return worst.exit_code;
  if (is_copy_) return exit_code_of(worst.error->code());
  throw *worst.error;
}

}  // namespace seqtile::cli
