// tests/jit/codegen/nvptx/ptxas_test.cpp -- assemblers that work, refuse, hang, crash or lie.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/nvptx/child_process.h"
#include "jit/codegen/nvptx/ptxas.h"
#include "jit/compiler.h"
#include "seqtile/compiler.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <fstream>
#include <thread>

#include "jit/abi/cubin.h"
#include "seqtile/error.h"
#include "tests/support/kernels/sample_kernels.h"
#include "tests/support/ptx/cubin_header.h"
#include "tests/support/temp_folder.h"

namespace seqtile {
namespace {

/// Sets an environment variable for the length of a test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (old_) setenv(name_, old_->c_str(), 1);
    else unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

std::string write_script(const std::string& path, const std::string& body) {
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  chmod(path.c_str(), 0755);
  return path;
}

KernelBinary sample_ptx() { return compile(*testing::sample_softmax(64), gpu_target("sm_80")); }

Target target_with(const std::string& program, const char* arch = "sm_80") {
  Target target = gpu_target("sm_80");
  target.cubin_arch = arch;
  target.ptxas = program;
  return target;
}

bool is_running(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return stat >> number >> name >> state && state != "Z";
}

/// Runs a script in the place of ptxas. Returns the message of the error, which is required.
std::string error_of(const std::string& body, const ChildLimits& limits = {},
                     ErrorCode code = ErrorCode::compile_failed) {
  const test::TempFolder folder;
  const Target target = target_with(write_script(folder.file("ptxas"), body));
  KernelBinary binary = sample_ptx();
  const KernelBinary before = binary;
  try {
    nvptx::assemble(binary, target, {}, limits);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    CHECK(binary.code == before.code);
    const std::string message = error.what();
    CHECK_THAT(message, Catch::StartsWith("kernel " + binary.symbol + ": " + target.ptxas + " for sm_80: "));
    CHECK(message.find('\n') == std::string::npos);
    return message;
  }
  FAIL("no error");
  return {};
}

}  // namespace

TEST_CASE("ptxas: its report is read", "[jit][ptxas]") {
  const ResourceUse use = nvptx::parse_ptxas_report(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x\n"
      "ptxas warning : Value of threads per SM for entry k is out of range\n"
      "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
      "ptxas info    : Function properties for k\n"
      "    16 bytes stack frame, 908 bytes spill stores, 1976 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 3 barriers, 16 bytes cumulative stack size, 49152 bytes smem\n"
      "ptxas info    : Compile time = 79.1 ms\n");
  CHECK(use.registers == 168);
  CHECK(use.stack_bytes == 16);
  CHECK(use.spill_store_bytes == 908);
  CHECK(use.spill_load_bytes == 1976);
  CHECK(use.shared_bytes == 49152);
  REQUIRE(use.warnings.size() == 2);
  CHECK_THAT(use.warnings[0], Catch::StartsWith("(C7510) Potential"));
  CHECK_THAT(use.warnings[1], Catch::StartsWith("Value of threads"));
}

TEST_CASE("ptxas: a report without shared memory or warnings", "[jit][ptxas]") {
  const ResourceUse use = nvptx::parse_ptxas_report("ptxas info    : Used 8 registers, used 0 barriers\n");
  CHECK(use.registers == 8);
  CHECK(use.shared_bytes == 0);
  CHECK(use.warnings.empty());
}

TEST_CASE("ptxas: a refusal is told in the words of its first error", "[jit][ptxas][fault]") {
  CHECK_THAT(error_of("echo 'ptxas info : fine'; echo \"ptxas x, line 7; error : Unknown modifier '.foo'\" >&2\n"
                      "echo 'ptxas fatal : aborted' >&2; exit 255"),
             Catch::EndsWith("exit status 255: ptxas x, line 7; error : Unknown modifier '.foo'"));
  CHECK_THAT(error_of("exit 3"), Catch::EndsWith("exit status 3: it said nothing"));
}

TEST_CASE("ptxas: one that hangs is killed with all that it started", "[jit][ptxas][fault]") {
  const test::TempFolder folder;
  const std::string file = folder.file("pid");
  pid_t pid = 0;
  for (double seconds = 1; pid == 0 && seconds < 100; seconds *= 4) {  // until it has started before it is killed
    CHECK_THAT(error_of("sleep 1000 & echo $! > " + file + "; wait", {.seconds = seconds}, ErrorCode::io),
               Catch::Contains(fmt::format("no answer within {:g} s", seconds)) &&
                   Catch::Contains("set SEQTILE_PTXAS to another"));
    std::ifstream(file) >> pid;
  }
  REQUIRE(pid != 0);
  for (int waits = 0; is_running(pid) && waits < 12'000; ++waits) usleep(10000);
  CHECK_FALSE(is_running(pid));
}

TEST_CASE("ptxas: one that computes without an end is ended by its processor time", "[jit][ptxas][fault]") {
  CHECK_THAT(error_of("while :; do :; done", {.processor_seconds = 1}, ErrorCode::io),
             Catch::Contains("no answer within 1 s of processor time"));
}

TEST_CASE("ptxas: one that crashes", "[jit][ptxas][fault]") {
  CHECK_THAT(
      error_of("echo starting; kill -SEGV $$", {}, ErrorCode::io),
      Catch::Contains("signal 11 (Segmentation fault): starting; set SEQTILE_PTXAS to another ptxas, or to none"));
}

TEST_CASE("ptxas: one that wants all memory", "[jit][ptxas][fault]") {
  const std::string message =
      error_of("exec dd if=/dev/zero of=/dev/null bs=3G count=1", {.seconds = 120, .memory_bytes = 1 << 30});
  CHECK_THAT(message, Catch::Contains("exit status 1: dd: memory exhausted"));
}

TEST_CASE("ptxas: one that cannot be started", "[jit][ptxas][fault]") {
  KernelBinary binary = sample_ptx();
  CHECK_THROWS_WITH(nvptx::assemble(binary, target_with("/absent/ptxas")),
                    "cannot start /absent/ptxas: No such file or directory");
}

TEST_CASE("ptxas: one that writes something else", "[jit][ptxas][fault]") {
  CHECK_THAT(error_of("exit 0"), Catch::EndsWith("the 0 bytes that it wrote are no cubin of this kind"));
  CHECK_THAT(error_of("echo garbage > \"$5\""), Catch::EndsWith("the 8 bytes that it wrote are no cubin of this kind"));
  const test::TempFolder folder;
  std::ofstream(folder.file("other")) << test::cubin_header(75);
  CHECK_THAT(error_of("cat " + folder.file("other") + " > \"$5\""), Catch::Contains("no cubin of this kind"));
  CHECK_THAT(error_of("yes '\001binary' | head -c 300000; exit 1"), Catch::EndsWith(": exit status 1:  binary"));
}

TEST_CASE("ptxas: one that is older than the GPU leaves the PTX to the driver", "[jit][ptxas]") {
  const test::TempFolder folder;
  const std::string says[] = {"ptxas fatal   : Value 'sm_80' is not defined for option 'gpu-name'",
                              "ptxas x, line 5; fatal   : Unsupported .version 8.0; current version is '7.4'"};
  for (const std::string& text : says) {
    const Target target = target_with(write_script(folder.file("ptxas"), "echo \"" + text + "\"; exit 1"));
    KernelBinary binary = sample_ptx();
    nvptx::assemble(binary, target);
    CHECK(binary.stage == "ptx");
    CHECK(binary.code == sample_ptx().code);
    CHECK_FALSE(binary.resources);
  }
}

TEST_CASE("ptxas: it is given the text and the architecture, and its cubin is taken", "[jit][ptxas]") {
  const test::TempFolder folder;
  std::ofstream(folder.file("cubin")) << test::cubin_header(89);
  const std::string body =
      "[ \"$1 $2 $4\" = '-v -arch=sm_89 -o' ] || exit 1\n"
      "grep -q '.target sm_80' \"$3\" || exit 2\n"
      "echo 'ptxas info : Used 40 registers'; cat " +
      folder.file("cubin") + " > \"$5\"";
  const Target target = target_with(write_script(folder.file("ptxas"), body), "sm_89");
  std::string dumped;
  const KernelBinary binary = compile(*testing::sample_softmax(64), target, [&](std::string_view stage, auto text) {
    if (stage == "cubin") dumped = text;
  });
  CHECK(binary.stage == "cubin");
  CHECK(binary.target == "sm_80");
  CHECK(binary.gpu.threads == sample_ptx().gpu.threads);
  REQUIRE(binary.resources);
  CHECK(binary.resources->registers == 40);
  CHECK(dumped == test::cubin_header(89));
  CHECK(cubin_sm(binary.code) == 89);
}

/// Assembles with a script that spills bytes[i] at attempt i, or fails if bytes[i] is negative. Returns the attempt
/// that was taken, and the number of attempts.
std::pair<int, int> attempt_taken(const std::vector<int>& bytes, const std::string& before = {},
                                  const ChildLimits& limits = {}) {
  const char* const options[] = {"",
                                 "--register-usage-level=10",
                                 "--minnctapersm=1",
                                 "--register-usage-level=2",
                                 "--register-usage-level=10 --minnctapersm=1",
                                 "-O1"};
  const test::TempFolder folder;
  std::ofstream(folder.file("cubin")) << test::cubin_header(80);
  std::string body = "echo >> " + folder.file("runs") + "; out=$5; shift 5; case \"$*\" in\n";
  for (size_t i = 0; i < bytes.size(); ++i)
    body += fmt::format("'{}') [ {} -ge 0 ] || exit 1; r={} s={};;\n", options[i], bytes[i], i, bytes[i]);
  body += "*) exit 2;; esac; " + before +
          "\necho \"    8 bytes stack frame, $s bytes spill stores, 0 bytes spill loads\"\n"
          "echo \"ptxas info : Used $r registers\"; cat " +
          folder.file("cubin") + " > \"$out\"";
  KernelBinary binary = sample_ptx();
  nvptx::assemble(binary, target_with(write_script(folder.file("ptxas"), body)), {}, limits);
  std::ifstream runs(folder.file("runs"));
  const auto count = std::count(std::istreambuf_iterator<char>(runs), {}, '\n');
  return {binary.resources.value().registers, static_cast<int>(count)};
}

TEST_CASE("ptxas: one that spills is asked again, at last for -O1, which has to spill nothing", "[jit][ptxas]") {
  using Taken = std::pair<int, int>;
  CHECK(attempt_taken({0, 0, 0, 0, 0, 0}) == Taken{0, 1});
  CHECK(attempt_taken({40, 0, 0, 0, 0, 0}) == Taken{1, 2});
  CHECK(attempt_taken({40, 20, 30, 10, 15, 8}) == Taken{3, 6});
  CHECK(attempt_taken({40, 20, 30, 10, 15, 0}) == Taken{5, 6});
  CHECK(attempt_taken({40, -1, -1, -1, -1, -1}) == Taken{0, 6});
}

TEST_CASE("ptxas: one that is slow is not asked again after the deadline of the first time", "[jit][ptxas][fault]") {
  std::pair<int, int> taken;
  for (double seconds = 1; taken.second < 2 && seconds < 100; seconds *= 4) try {
      taken = attempt_taken({40, 0, 0, 0, 0, 0}, "[ $r = 0 ] || sleep 1000", {.seconds = seconds});
    } catch (const Error&) {  // the first time was over before its deadline could be kept
    }
  CHECK(taken == std::pair{0, 2});
}

TEST_CASE("ptxas: several run at once", "[jit][ptxas]") {
  const test::TempFolder folder;
  std::ofstream(folder.file("cubin")) << test::cubin_header(80);
  // Each script waits until both have started.
  const std::string body = "cd " + folder.path() +
                           "; : > started.$$; n=0\n"
                           "while [ $(ls started.* | wc -l) -lt 2 ]; do sleep 0.05; n=$((n+1)); "
                           "[ $n -gt 2000 ] && exit 9; done; cat cubin > \"$5\"";
  const Target target = target_with(write_script(folder.file("ptxas"), body));
  std::string stages[2];
  {
    std::vector<std::jthread> threads;
    for (std::string& stage : stages)
      threads.emplace_back([&] {
        try {
          stage = compile(*testing::sample_softmax(64), target).stage;
        } catch (const Error& error) {
          stage = error.what();
        }
      });
  }
  CHECK(stages[0] == "cubin");
  CHECK(stages[1] == "cubin");
}

TEST_CASE("ptxas: where it is looked for", "[jit][ptxas]") {
  const test::TempFolder folder;
  std::filesystem::create_directories(folder.file("home/bin"));
  std::filesystem::create_directories(folder.file("path"));
  std::ofstream(folder.file("80")) << test::cubin_header(80);
  std::ofstream(folder.file("89")) << test::cubin_header(89);
  const std::string body = "/bin/cat " + folder.path() + "/${2#-arch=sm_} > \"$5\"";
  const std::string in_path = write_script(folder.file("path/ptxas"), body);
  const std::string in_home = write_script(folder.file("home/bin/ptxas"), body);
  const Variable path("PATH", "/nowhere:" + folder.file("path"));
  {
    const Variable home("CUDA_HOME", folder.file("home"));
    CHECK(nvptx::find_ptxas() == in_home);
  }
  const Variable no_home("CUDA_HOME", ""), no_path("CUDA_PATH", "");
  CHECK(nvptx::find_ptxas() == in_path);
  {
    const Variable named("SEQTILE_PTXAS", in_home);
    CHECK(nvptx::find_ptxas() == in_home);
    CHECK(assembled(gpu_target("sm_80")).cubin_arch == "sm_80");
    CHECK(assembled(gpu_target("sm_80"), "sm_89").cubin_arch == "sm_89");
  }
  const Variable none("SEQTILE_PTXAS", "none");
  CHECK_FALSE(nvptx::find_ptxas());
  CHECK(assembled(gpu_target("sm_80")).cubin_arch.empty());
  const Variable wrong("SEQTILE_PTXAS", folder.file("absent"));
  CHECK_THROWS_WITH(nvptx::find_ptxas(), Catch::Contains("absent") && Catch::Contains("no program that can be run"));
}

TEST_CASE("ptxas: one that does nothing right is as good as none, and is asked once", "[jit][ptxas][fault]") {
  const test::TempFolder folder;
  const std::string program = folder.file("ptxas"), runs = folder.file("runs");
  const Variable named("SEQTILE_PTXAS", program);
  std::ofstream(folder.file("cubin")) << test::cubin_header(80);
  const auto times_run = [&] {
    std::ifstream file(runs);
    return std::count(std::istreambuf_iterator<char>(file), {}, 'x');
  };
  int64_t times = 0;
  const std::string wrong[] = {"exit 12", "sleep 1000", "kill -SEGV $$", "exit 0", "echo garbage > \"$5\""};
  for (const std::string& body : wrong) {
    INFO(body);
    std::filesystem::remove(program);
    write_script(program, "printf x >> " + runs + "; " + body);
    const double seconds = body.starts_with("sleep") ? 2 : 120;
    for (int i = 0; i < 2; ++i) CHECK_FALSE(nvptx::usable_ptxas("sm_80", {.seconds = seconds}));
    CHECK(assembled(gpu_target("sm_80")).cubin_arch.empty());
    CHECK(compile(*testing::sample_softmax(64), assembled(gpu_target("sm_80"))).stage == "ptx");
    CHECK(times_run() == ++times);
  }
  std::ofstream(program) << "\x7f"
                            "ELF of another machine";
  CHECK_FALSE(nvptx::usable_ptxas("sm_80"));
  // A newly installed program is another version. An assembler that is too old is usable, and leaves kernels as PTX.
  const std::string right[] = {"cat " + folder.file("cubin") + " > \"$5\"",
                               "echo \"ptxas fatal : Value 'sm_80' is not defined for option 'gpu-name'\"; exit 1"};
  for (const std::string& body : right) {
    write_script(program, body);
    CHECK(nvptx::usable_ptxas("sm_80") == program);
  }
}

TEST_CASE("ptxas: another version is another toolchain, for cubins only", "[jit][ptxas]") {
  const test::TempFolder folder;
  const Target target = target_with(write_script(folder.file("ptxas"), "exit 0"));
  const std::string first = toolchain_version(target);
  CHECK_THAT(first, Catch::StartsWith(std::string(toolchain_version())) && Catch::EndsWith("for sm_80"));
  CHECK(toolchain_version(target_with(target.ptxas, "sm_89")) != first);
  write_script(folder.file("ptxas"), "exit 0 # newer");
  CHECK(toolchain_version(target) != first);
  CHECK(toolchain_version(gpu_target("sm_80")) == toolchain_version());
  CHECK_THROWS_WITH(toolchain_version(target_with(folder.file("absent"))), Catch::Contains("is gone"));
}

TEST_CASE("is_made_for: a binary of another stage or GPU is not what a target asks for", "[jit][ptxas]") {
  const Target plain = gpu_target("sm_80");
  Target assembled_80 = plain, assembled_89 = plain;
  assembled_80.cubin_arch = "sm_80";
  assembled_89.cubin_arch = "sm_89";
  KernelBinary binary{.symbol = "k", .target = "sm_80", .stage = "ptx"};
  CHECK(is_made_for(binary, plain));
  CHECK(is_made_for(binary, assembled_80));
  CHECK_FALSE(is_made_for(binary, gpu_target("sm_90a")));
  CHECK_FALSE(is_made_for(binary, host_target()));
  binary.stage = "cubin";
  CHECK_FALSE(is_made_for(binary, assembled_80));  // a damaged cubin
  const std::string code = test::cubin_header(80);
  const auto bytes = std::as_bytes(std::span(code));
  binary.code.assign(bytes.begin(), bytes.end());
  CHECK(is_made_for(binary, assembled_80));
  CHECK_FALSE(is_made_for(binary, assembled_89));
  CHECK_FALSE(is_made_for(binary, plain));
}

TEST_CASE("cubin: the architecture is read from old and new headers, damage is none", "[jit][ptxas]") {
  const auto sm_of = [](const std::string& text) { return cubin_sm(std::as_bytes(std::span(text))); };
  CHECK(sm_of(test::cubin_header(90)) == 90);
  CHECK(sm_of(test::cubin_header(120)) == 120);
  CHECK(sm_of(test::cubin_header(86, false)) == 86);
  CHECK_FALSE(sm_of(""));
  CHECK_FALSE(sm_of(test::cubin_header(90).substr(0, 63)));
  CHECK_FALSE(sm_of("x" + test::cubin_header(90)));
  std::string truncated = test::cubin_header(90);
  truncated[offsetof(Elf64_Ehdr, e_shoff) + 1] = 1;
  CHECK_FALSE(sm_of(truncated));
  CHECK(sm_number("sm_90a") == 90);
  CHECK(sm_number("sm_120") == 120);
  CHECK(sm_number("cpu:avx2") == 0);
}

TEST_CASE("ptxas: its process has the files that it is given and no other descriptor", "[jit][ptxas]") {
  const MemoryFile given, other;
  const int inherited = dup(other.descriptor());  // without close-on-exec
  const MemoryFile* const files[] = {&given};
  const auto sees = [&](int descriptor) {
    const std::string arguments[] = {"/bin/sh", "-c", fmt::format("[ -e /proc/self/fd/{} ]", descriptor)};
    return run_child(arguments, files, {}).ok();
  };
  CHECK(sees(given.descriptor()));
  CHECK_FALSE(sees(inherited));
  CHECK(fcntl(inherited, F_GETFD) == 0);
  close(inherited);
}

TEST_CASE("ptxas: the toolkit's own makes a cubin of every sample kernel", "[jit][ptxas]") {
  const auto ptxas = nvptx::find_ptxas();
  if (!ptxas) {
    WARN("skipped: this machine has no ptxas");
    return;
  }
  for (const char* name : {"sm_80", "sm_90a"}) {
    const KernelBinary binary = compile(*testing::sample_softmax(64), assembled(gpu_target(name)));
    CHECK(binary.stage == "cubin");
    CHECK(cubin_sm(binary.code) == sm_number(name));
    REQUIRE(binary.resources);
    CHECK(binary.resources->registers > 0);
    CHECK(binary.resources->spill_store_bytes == 0);
  }
}

}  // namespace seqtile
