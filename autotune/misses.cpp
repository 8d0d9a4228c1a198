// autotune/misses.cpp -- see misses.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/misses.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include <fmt/format.h>

#include "autotune/text/json_text.h"
#include "jit/base/descriptor.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kVersion = 1;

/// Refuses a part of the file: "misses.json: misses[3]: lengths is ...".
class Reader {
 public:
  Reader(const nlohmann::json& value, std::string place) : value_(value), place_(std::move(place)) {}

  [[noreturn]] void refuse(const std::string& problem) const {
    throw Error(ErrorCode::invalid_argument, place_ + ": " + problem);
  }
  Reader member(const char* name) const {
    const auto found = value_.is_object() ? value_.find(name) : value_.end();
    if (!value_.is_object() || found == value_.end())
      refuse(fmt::format("has no \"{}\"; give a file that an engine's write_misses() has written", name));
    return {*found, fmt::format("{}: {}", place_, name)};
  }
  std::vector<Reader> items() const {
    if (!value_.is_array()) refuse("is " + excerpt(value_) + "; an array is expected");
    std::vector<Reader> all;
    for (size_t i = 0; i < value_.size(); ++i) all.emplace_back(value_[i], fmt::format("{}[{}]", place_, i));
    return all;
  }
  std::string text() const {
    if (!value_.is_string()) refuse("is " + excerpt(value_) + "; a text is expected");
    return value_.get<std::string>();
  }
  int64_t number(int64_t lo, int64_t hi) const {
    const bool is_number = value_.is_number_integer() &&
                           !(value_.is_number_unsigned() && value_.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
    if (!is_number || value_.get<int64_t>() < lo || value_.get<int64_t>() > hi)
      refuse(fmt::format("is {}; a whole number of {}..{} is expected", excerpt(value_), lo, hi));
    return value_.get<int64_t>();
  }
  /// The workload, as Workload::json() writes it.
  Workload workload(const std::string& operation) const {
    if (!value_.is_object()) refuse("is " + excerpt(value_) + "; an object is expected");
    nlohmann::json fields = value_;
    const auto dtype = parse_dtype(member("dtype").text());
    if (!dtype) member("dtype").refuse("is no dtype");
    Workload read{operation, *dtype, static_cast<int>(member("threads").number(1, 1 << 20)), {}};
    fields.erase("dtype");
    fields.erase("threads");
    read.fields = name_errors(place_, [&] { return Fields::parse(fields.dump()); });
    return read;
  }

 private:
  const nlohmann::json& value_;
  std::string place_;
};

Miss miss_of(const Reader& item) {
  Miss miss;
  miss.workload = item.member("workload").workload(item.member("operation").text());
  const auto ends = item.member("lengths").items();
  if (ends.size() != 2) item.member("lengths").refuse("has not the two ends of a range");
  miss.bucket.lo = ends[0].number(1, kMaxLength);
  miss.bucket.hi = ends[1].number(miss.bucket.lo, kMaxLength);
  miss.calls = item.member("calls").number(0, INT64_MAX);
  return miss;
}

}  // namespace

std::string miss_file_text(const MissFile& file) {
  Json misses = Json::array();
  for (const Miss& miss : file.misses)
    misses.push_back({{"operation", miss.workload.operation},
                      {"workload", Json::parse(miss.workload.json())},
                      {"lengths", {miss.bucket.lo, miss.bucket.hi}},
                      {"calls", miss.calls}});
  return Json{{"seqtile_misses", kVersion}, {"device", file.device}, {"misses", std::move(misses)}}.dump(
             1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

MissFile read_miss_file(std::string_view text, const std::string& name) {
  const JsonText read = read_json(text, name, false);
  const Reader whole(read.value, name);
  whole.member("seqtile_misses").number(kVersion, kVersion);
  MissFile file{whole.member("device").text(), {}};
  for (const Reader& item : whole.member("misses").items()) file.misses.push_back(miss_of(item));
  return file;
}

void write_whole_file(const std::string& path, std::string_view text) {
  if (path.empty()) throw Error(ErrorCode::invalid_argument, "the path of the file is empty; name a file");
  static std::atomic<int64_t> number{0};
  const std::string aside = fmt::format("{}.{}.{}.new", path, getpid(), number.fetch_add(1));
  const auto refuse = [&](const char* what, int error) {
    std::error_code ignored;
    std::filesystem::remove(aside, ignored);
    throw Error(ErrorCode::io, fmt::format("{}: {}: {}; name a file in a folder that may be written", path, what,
                                           std::generic_category().message(error)));
  };
  {
    Descriptor file(open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file.is_open()) refuse("cannot be made", errno);
    while (!text.empty()) {
      const ssize_t written = write(file.get(), text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) refuse("cannot be written", errno);
      text.remove_prefix(static_cast<size_t>(written));
    }
    if (close(file.release()) != 0) refuse("cannot be written", errno);  // some file systems say it only here
  }
  if (rename(aside.c_str(), path.c_str()) != 0) refuse("cannot be replaced", errno);
}

}  // namespace seqtile::autotune
