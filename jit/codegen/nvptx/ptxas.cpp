// jit/codegen/nvptx/ptxas.cpp -- see ptxas.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/nvptx/ptxas.h"

#include "jit/base/forever.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>

#include "jit/abi/cubin.h"
#include "jit/base/env.h"
#include "jit/base/log.h"
#include "seqtile/error.h"

#include <fmt/format.h>

namespace seqtile::nvptx {
namespace {

constexpr const char* kUsualFolder = "/usr/local/cuda/bin";
constexpr size_t kMaxCubinBytes = 128 << 20;
constexpr std::string_view kSmallestKernel =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry smallest() { ret; }\n";

bool is_program(const std::string& path) {
  struct stat facts = {};
  return stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && access(path.c_str(), X_OK) == 0;
}

/// "ptxas info    : (C7510) text" and "ptxas warning : text" without what comes before the text; else nothing.
std::string warning_in(const std::string& line) {
  const size_t colon = line.find(" : ");
  if (colon == std::string::npos) return {};
  const std::string text = line.substr(colon + 3);
  const bool has_number = text.size() > 2 && text[0] == '(' && text[1] == 'C' && std::isdigit(text[2]);
  return has_number || line.substr(0, colon).find("warning") != std::string::npos ? text : std::string();
}

/// The line of `output` that says what went wrong: its first error, else its last line.
std::string complaint(const std::string& output) {
  std::istringstream lines(output);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    for (char& c : line)
      if (!std::isprint(static_cast<unsigned char>(c))) c = ' ';
    line.resize(std::min<size_t>(line.size(), 300));
    if (line.find("error") != std::string::npos || line.find("fatal") != std::string::npos) return line;
    if (line.find_first_not_of(' ') != std::string::npos) last = line;
  }
  return last.empty() ? "it said nothing" : last;
}

/// The assembler does not know the architecture or this version of PTX.
bool is_too_old(const std::string& output) {
  return output.find("is not defined for option 'gpu-name'") != std::string::npos ||
         output.find("Unsupported .version") != std::string::npos;
}

[[noreturn]] void fail(ErrorCode code, const KernelBinary& binary, const Target& target, const std::string& why,
                       const std::string& output) {
  if (log_enabled(LogLevel::trial)) log_line(LogLevel::trial, "ptxas: " + output);
  throw Error(code, fmt::format("kernel {}: {} for {}: {}", binary.symbol, target.ptxas, target.cubin_arch, why));
}

/// One that refuses a text says why; what crashes or hangs is the machine's fault, and another may do better.
[[noreturn]] void fail(const KernelBinary& binary, const Target& target, const ChildResult& result,
                       const ChildLimits& limits) {
  const std::string why = fmt::format("{}: {}", result.cause(limits), complaint(result.output));
  if (!result.is_timed_out && !result.signal) fail(ErrorCode::compile_failed, binary, target, why, result.output);
  fail(ErrorCode::io, binary, target,
       why + "; set SEQTILE_PTXAS to another ptxas, or to none: the driver compiles the kernel then", result.output);
}

}  // namespace

std::optional<std::string> find_ptxas() {
  if (const auto named = env::ptxas_program()) {
    if (*named == "none") return std::nullopt;
    if (is_program(*named)) return named;
    throw Error(
        ErrorCode::unsupported,
        fmt::format("SEQTILE_PTXAS={}: that is no program that can be run; give the path of ptxas, or none", *named));
  }
  auto folders = env::toolkit_folders();
  folders.emplace_back(kUsualFolder);
  for (const std::string& folder : folders)
    if (const std::string path = folder + "/ptxas"; is_program(path)) return path;
  return std::nullopt;
}

std::string ptxas_identity(const std::string& program) {
  struct stat facts = {};
  if (stat(program.c_str(), &facts) != 0)
    throw Error(ErrorCode::unsupported,
                fmt::format("the assembler {} is gone: {}; install it again, or set SEQTILE_PTXAS", program,
                            std::strerror(errno)));
  return fmt::format("ptxas of {} bytes, {}", facts.st_size, facts.st_mtime);
}

namespace {

using Clock = std::chrono::steady_clock;

struct Assembled {
  ChildResult result;
  std::string code;
  ResourceUse use;
};

/// One run of the assembler with more `options`.
Assembled run_ptxas(const MemoryFile& ptx, const Target& target, const ChildLimits& limits,
                    const std::vector<std::string>& options) {
  const MemoryFile cubin;
  std::vector<std::string> arguments = {target.ptxas, "-v", "-arch=" + target.cubin_arch,
                                        ptx.path(),   "-o", cubin.path()};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const MemoryFile* const files[] = {&ptx, &cubin};
  Assembled assembled{run_child(arguments, files, limits), {}, {}};
  if (assembled.result.ok())
    assembled.code = cubin.read(kMaxCubinBytes), assembled.use = parse_ptxas_report(assembled.result.output);
  return assembled;
}

/// The assembler trades a few spilled values for one more block a multiprocessor, or for loads that it moves ahead;
/// what it does not spill when told to use registers freely, that one block is enough, or to move less, is the better
/// code. In kernels of many products it moves so much ahead that half of the registers are enough with -O1, the last
/// resort, which is worth it where nothing is spilled then. An assembler without these options keeps its first word,
/// and none is asked again after the deadline.
Assembled without_spills(Assembled best, const MemoryFile& ptx, const Target& target, ChildLimits limits,
                         Clock::time_point deadline) {
  const auto spilled = [](const Assembled& a) { return a.use.spill_store_bytes + a.use.spill_load_bytes; };
  const std::string freely = "--register-usage-level=10", one_block = "--minnctapersm=1", last_resort = "-O1";
  const std::vector<std::string> attempts[] = {
      {freely}, {one_block}, {"--register-usage-level=2"}, {freely, one_block}, {last_resort}};
  for (const std::vector<std::string>& options : attempts) {
    limits.seconds = std::chrono::duration<double>(deadline - Clock::now()).count();
    if (spilled(best) == 0 || limits.seconds <= 0 || limits.processor_seconds <= 0) break;
    Assembled next = run_ptxas(ptx, target, limits, options);
    limits.processor_seconds -= next.result.processor_seconds;
    const int64_t most = options.front() == last_resort ? 0 : spilled(best) - 1;
    const bool is_better =
        next.result.ok() && spilled(next) <= most && next.use.warnings.size() <= best.use.warnings.size();
    if (is_better) best = std::move(next);
  }
  return best;
}

/// Why `program` is of no use, as the smallest kernel shows, or nothing. One that is too old is told of by assemble().
std::string defect_of(const std::string& program, const std::string& arch, const ChildLimits& limits) {
  Target target;
  target.ptxas = program, target.cubin_arch = arch;
  try {
    const Assembled assembled = run_ptxas(MemoryFile(kSmallestKernel), target, limits, {});
    const ChildResult& result = assembled.result;
    if (is_too_old(result.output)) return {};
    if (!result.ok()) return fmt::format("{}: {}", result.cause(limits), complaint(result.output));
    const bool is_cubin = cubin_sm(std::as_bytes(std::span(assembled.code))) == sm_number(arch);
    return is_cubin ? "" : fmt::format("the {} bytes that it wrote are no cubin", assembled.code.size());
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

std::optional<std::string> usable_ptxas(const std::string& arch, const ChildLimits& limits) {
  const auto program = find_ptxas();
  if (!program) return std::nullopt;
  static std::mutex mutex;
  static auto& known = forever(std::map<std::string, bool>());  // by program and version
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace(*program + " " + ptxas_identity(*program));
  if (is_new) {
    const std::string defect = defect_of(*program, arch, limits);
    found->second = defect.empty();
    if (!defect.empty())
      log_line(LogLevel::warning, fmt::format("{} does not work ({}); kernels stay PTX, which the driver compiles; "
                                              "install it again, or set SEQTILE_PTXAS to another one, or to none",
                                              *program, defect));
  }
  return found->second ? program : std::nullopt;
}

void assemble(KernelBinary& binary, const Target& target, const StageDump& dump, const ChildLimits& limits) {
  const MemoryFile ptx({reinterpret_cast<const char*>(binary.code.data()), binary.code.size()});
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limits.seconds));
  Assembled assembled = run_ptxas(ptx, target, limits, {});
  const ChildResult& result = assembled.result;
  if (!result.ok() && is_too_old(result.output))
    return log_line(LogLevel::warning, fmt::format("{} is too old for {}, its kernels stay PTX: {}", target.ptxas,
                                                   target.cubin_arch, complaint(result.output)));
  if (!result.ok()) fail(binary, target, result, limits);
  // The bound of all runs together is one of processor time: a busy machine makes the same code.
  ChildLimits rest = limits;
  rest.processor_seconds -= assembled.result.processor_seconds;
  assembled = without_spills(std::move(assembled), ptx, target, rest, deadline);
  const auto bytes = std::as_bytes(std::span(assembled.code));
  if (cubin_sm(bytes) != sm_number(target.cubin_arch))
    fail(ErrorCode::compile_failed, binary, target,
         fmt::format("the {} bytes that it wrote are no cubin of this kind", bytes.size()), result.output);
  binary.code.assign(bytes.begin(), bytes.end());
  binary.stage = "cubin";
  binary.resources = assembled.use;
  if (dump) dump("cubin", assembled.code);
}

ResourceUse parse_ptxas_report(std::string_view text) {
  ResourceUse use;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    long long stack = 0, stores = 0, loads = 0, shared = 0;
    if (std::sscanf(line.c_str(), " %lld bytes stack frame, %lld bytes spill stores, %lld bytes spill loads", &stack,
                    &stores, &loads) == 3)
      use.stack_bytes = stack, use.spill_store_bytes = stores, use.spill_load_bytes = loads;
    if (const size_t at = line.find(": Used "); at != std::string::npos) {
      std::sscanf(line.c_str() + at, ": Used %d registers", &use.registers);
      // "..., 1024 bytes smem": the number stands before the words.
      const size_t words = line.find(" bytes smem");
      const size_t comma = line.rfind(", ", words);
      if (words != std::string::npos && comma < words && std::sscanf(line.c_str() + comma, ", %lld", &shared) == 1)
        use.shared_bytes = shared;
    }
    if (std::string warning = warning_in(line); !warning.empty()) use.warnings.push_back(std::move(warning));
  }
  return use;
}

}  // namespace seqtile::nvptx
