// tools/cli/output.cpp -- see output.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cache/database/files.h"
#include "cache/database/text.h"
#include "jit/base/counted.h"
#include "jit/base/descriptor.h"
#include "jit/base/log.h"
#include "seqtile/error.h"
#include "tools/cli/errors.h"

namespace seqtile::cli {
namespace {

constexpr double kQuietSeconds = 2, kLineSeconds = 10;
constexpr int kBarCells = 24;

bool is_number(const std::string& cell) {
  return cell.empty() || std::isdigit(static_cast<unsigned char>(cell[0])) || cell[0] == '-' || cell[0] == '+';
}

/// Opens `path`, writes all of `text`, and flushes it to the disk. Returns 0 or errno. `mode` is set unless it is 0.
int write_opened(const std::string& path, int flags, mode_t mode, std::string_view text) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666));
  if (!file.is_open() || (mode != 0 && fchmod(file.get(), mode) != 0)) return errno;
  while (!text.empty()) {
    const ssize_t count = write(file.get(), text.data(), text.size());
    if (count < 0 && errno != EINTR) return errno;
    text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  }
  return fsync(file.get()) == 0 || errno == EINVAL ? 0 : errno;  // EINVAL: a pipe or device
}

/// Refuses `path` for the reason `error`: a path that can be no file is the caller's mistake, all else the machine's.
[[noreturn]] void refuse_to_write(const std::string& flag, const std::string& path, int error) {
  const std::string folder = cache::parent_folder(path);
  std::error_code unknown;
  if (error == EISDIR) bad_input(fmt::format("{} {}: is a folder; give the path of a file", flag, path));
  if (error == ENOTDIR)
    bad_input(fmt::format("{} {}: a part of {} is not a folder; give another path", flag, path, folder));
  if (error == ENOENT && !std::filesystem::is_directory(folder, unknown))
    bad_input(fmt::format("{} {}: there is no folder {}; make it, or give another path", flag, path, folder));
  const bool is_no_path = error == ENAMETOOLONG || error == ELOOP;
  throw Error(is_no_path ? ErrorCode::invalid_argument : ErrorCode::io,
              fmt::format("{} {}: cannot be written: {}; check the folder, its permissions and the free space, or name "
                          "another file",
                          flag, path, std::strerror(error)));
}

/// The place of a file's new content.
struct Place {
  std::string target;      ///< `path`, or the file that it links to
  mode_t mode = 0;         ///< of the present file; 0: there is none
  bool is_stream = false;  ///< a pipe or device, which is written into

  /// Name of the file that has the content until it is complete.
  std::string aside() const { return fmt::format("{}.{}", target, getpid()); }
};

/// Whether the file begins as stores do, or is SQLite's own beside one.
bool is_database(const std::string& path) {
  constexpr std::string_view kBegin = "SQLite format 3";
  for (const std::string_view beside : {"-wal", "-shm", "-journal"})
    if (path.ends_with(beside) && is_database(path.substr(0, path.size() - beside.size()))) return true;
  std::array<char, kBegin.size()> begin{};
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.is_open() && read(file.get(), begin.data(), begin.size()) == std::ssize(begin) &&
         std::string_view(begin.data(), begin.size()) == kBegin;
}

/// Whether `path` names what another program has opened, such as /dev/stdout: a file there is written into.
bool is_descriptor(const std::string& path) {
  return path.starts_with("/dev/std") || path.starts_with("/dev/fd/") || path.starts_with("/proc/");
}

Place place_of(const std::string& flag, const std::string& path) {
  struct stat info = {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) refuse_to_write(flag, path, errno);
  if (exists && S_ISDIR(info.st_mode)) refuse_to_write(flag, path, EISDIR);
  if (exists && access(path.c_str(), W_OK) != 0) refuse_to_write(flag, path, errno);
  if (exists && (!S_ISREG(info.st_mode) || is_descriptor(path))) return {path, 0, true};
  if (exists && is_database(path))
    bad_input(fmt::format("{} {}: is an SQLite database or a part of one, which would be lost; give another path", flag,
                          path));
  std::error_code unresolved;
  if (!exists && std::filesystem::is_symlink(path, unresolved))
    bad_input(fmt::format("{} {}: is a symbolic link to nothing; remove it, or give another path", flag, path));
  if (!exists) return {path};
  return {std::filesystem::canonical(path, unresolved).string(), info.st_mode & 07777};
}

/// Removes control characters, which are instructions to a terminal; names of nodes, models and files may have them.
std::string shown(std::string_view text) { return cache::one_line(text, text.size()); }

struct Column {
  size_t width = 0;
  bool is_numeric = true;
};

}  // namespace

void Table::add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = shown(cell);
  rows_.push_back(std::move(row));
}

void Table::print() const {
  std::vector<Column> columns;
  for (size_t r = 0; r < rows_.size(); ++r) {
    columns.resize(std::max(columns.size(), rows_[r].size()));
    for (size_t i = 0; i < rows_[r].size(); ++i) {
      columns[i].width = std::max(columns[i].width, rows_[r][i].size());
      if (r > 0 && !is_number(rows_[r][i])) columns[i].is_numeric = false;
    }
  }
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += fmt::format(fmt::runtime(columns[i].is_numeric ? "{:>{}}  " : "{:<{}}  "), row[i], columns[i].width);
    line.erase(line.find_last_not_of(' ') + 1);
    print_line(line);
  }
}

// flush_output() reports failed writes.
void print_text(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_line(const std::string& line) { print_text(shown(line) + "\n"); }

void write_file(const std::string& flag, const std::string& path, std::string_view text) {
  const Place place = place_of(flag, path);
  if (place.is_stream) {
    if (const int error = write_opened(path, O_APPEND, 0, text)) refuse_to_write(flag, path, error);
    return;
  }
  const std::string aside = place.aside();
  int error = write_opened(aside, O_CREAT | O_EXCL, place.mode, text);
  if (!error && rename(aside.c_str(), place.target.c_str()) != 0) error = errno;
  if (error && error != EEXIST) unlink(aside.c_str());
  if (error) refuse_to_write(flag, path, error);
}

// Permissions do not tell all: root may write where a file system takes no files.
void check_can_write(const std::string& flag, const std::string& path) {
  const Place place = place_of(flag, path);
  if (place.is_stream) return;
  const std::string aside = place.aside();
  const Descriptor file(open(aside.c_str(), O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL, 0666));
  if (!file.is_open()) refuse_to_write(flag, path, errno);
  unlink(aside.c_str());
}

bool flush_output() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

void print_json(const Json& object) {
  // Text from files may hold bytes that are not UTF-8; these are replaced, because a throw would lose the output.
  print_text(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  std::fflush(stdout);
}

void warn(const std::string& line) {
  std::fflush(stdout);
  log_line(LogLevel::warning, shown(line));
}

std::string format_us(double microseconds) {
  if (microseconds < 1e3) return fmt::format("{:.3g} us", microseconds);
  if (microseconds < 1e6) return fmt::format("{:.3g} ms", microseconds / 1e3);
  return fmt::format("{:.1f} s", microseconds / 1e6);
}

std::string format_seconds(double seconds) {
  if (seconds < 100) return fmt::format("{:.1f} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {} s", static_cast<int>(seconds) / 60, static_cast<int>(seconds) % 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string format_bytes(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1e6) return fmt::format("{:.1f} kB", bytes / 1e3);
  return fmt::format("{:.1f} MB", bytes / 1e6);
}

std::string format_count(int64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const size_t left = digits.size() - i;
    if (i > 0 && left % 3 == 0 && digits[i - 1] != '-') text += ',';
    text += digits[i];
  }
  return text;
}

std::string format_counted(int64_t count, const std::string& noun) {
  return format_count(count) + " " + plural_of(count, noun);
}

std::string format_bucket(int64_t lo, int64_t hi) { return fmt::format("[{}..{}]", lo, hi); }

std::string format_fields(const autotune::Fields& fields) {
  std::string text;
  for (const auto& [name, value] : fields.values()) {
    text += text.empty() ? "" : " ";
    text += name + "=" + std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
  }
  return text;
}

Json fields_json(const autotune::Fields& fields) { return Json::parse(fields.json()); }

Progress::Progress(std::string title) : title_(std::move(title)), is_terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (is_bar_shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::update(const autotune::TuneProgress& progress) {
  if (progress.elapsed_s < kQuietSeconds) return;
  const double share = progress.total > 0 ? std::clamp(double(progress.done) / progress.total, 0.0, 1.0) : 0.0;
  std::string text = fmt::format("{:3.0f} %", 100 * share);
  if (progress.left_s > 0) text += ", " + format_seconds(progress.left_s) + " left";
  if (progress.trials > 0) text += ", " + format_counted(progress.trials, "trial");
  text += ": " + progress.activity;
  if (!is_terminal_) {
    if (progress.elapsed_s - last_line_s_ < kLineSeconds) return;
    last_line_s_ = progress.elapsed_s;
    fmt::print(stderr, "{}: {}\n", title_, text);
    return;
  }
  const int filled = static_cast<int>(share * kBarCells);
  fmt::print(stderr, "\r\033[K{} [{}{}]{:.100}", title_, std::string(filled, '#'), std::string(kBarCells - filled, '.'),
             text);
  std::fflush(stderr);
  is_bar_shown_ = true;
}

void Progress::acknowledge(const std::string& line) {
  if (is_terminal_) return;  // the bar shows the count
  fmt::print(stderr, "{}: {}\n", title_, line);
}

void Steps::begin(const std::string& activity) {
  const double gone = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const int64_t done = begun_++;
  const double left = done > 0 ? gone / static_cast<double>(done) * static_cast<double>(total_ - done) : 0;
  progress_.update({activity, done, total_, 0, gone, left});
}

}  // namespace seqtile::cli
