// tests/support/kernels/compiled.cpp -- see compiled.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernels/compiled.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "jit/base/hash.h"
#include "jit/device/gpu_launch.h"
#include "seqtile/compiler.h"

namespace seqtile::testing {

namespace {

/// The folder of this library, named by the library's size and time. A missing folder is made, and the folders of
/// earlier builds are removed. Empty if the library's file is not found.
std::string make_folder() {
  namespace fs = std::filesystem;
  Dl_info info{};
  struct stat file {};
  if (!dladdr(reinterpret_cast<const void*>(&can_compile_for), &info) || stat(info.dli_fname, &file) != 0) return {};
  const fs::path all = SEQTILE_TEST_BINARIES;
  const fs::path own = all / fmt::format("{}_{}_{:09}", file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  std::error_code error;
  if (fs::exists(own)) return own.string();
  for (const auto& other : fs::directory_iterator(all, error))
    if (other.path() != own) fs::remove_all(other.path(), error);
  fs::create_directories(own, error);
  return error ? "" : own.string();
}

const std::string& folder() {
  static const std::string path = make_folder();
  return path;
}

/// The file of a kernel, named by a hash of all inputs of its bytes.
std::string file_of(const ir::Function& function, const Target& t) {
  return folder() + "/" +
         sha256_hex(fmt::format("{} {} {} {} {} {} {} {}\n{}", t.name, t.features, t.l1_bytes, t.l2_bytes, t.l3_bytes,
                                t.shared_bytes, t.cubin_arch, t.ptxas, ir::print(function)));
}

void save(const KernelBinary& b, const std::string& file) {
  const std::string temporary = fmt::format("{}.{}", file, getpid());
  std::ofstream out(temporary, std::ios::binary);
  out << fmt::format("{}\n{}\n{}\n{}\n{} {} {} {}\n", b.symbol, b.target, b.stage, to_text(b.gpu), b.entry_offset,
                     b.arena_bytes, b.num_slots, b.code.size());
  out.write(reinterpret_cast<const char*>(b.code.data()), static_cast<std::streamsize>(b.code.size()));
  out.close();
  std::error_code ignored;
  if (out) std::filesystem::rename(temporary, file, ignored);
}

std::optional<KernelBinary> load(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  KernelBinary b;
  std::string gpu, numbers;
  for (std::string* line : {&b.symbol, &b.target, &b.stage, &gpu, &numbers}) std::getline(in, *line);
  size_t bytes = 0;
  if (!(std::istringstream(numbers) >> b.entry_offset >> b.arena_bytes >> b.num_slots >> bytes)) return {};
  b.code.resize(bytes);
  if (!in.read(reinterpret_cast<char*>(b.code.data()), static_cast<std::streamsize>(bytes))) return {};
  if (const auto launch = parse_gpu_launch(gpu)) b.gpu = *launch;
  return b;
}

}  // namespace

KernelBinary compiled(const ir::Function& function, const Target& target) {
  if (folder().empty()) return compile(function, target);
  const std::string file = file_of(function, target);
  if (auto found = load(file)) return *std::move(found);
  KernelBinary binary = compile(function, target);
  save(binary, file);
  return binary;
}

std::string shared_artifacts() {
  static const int once = setenv("SEQTILE_CONFIG_DIR", folder().c_str(), 1);
  (void)once;
  return folder() + "/artifacts.db";
}

}  // namespace seqtile::testing
