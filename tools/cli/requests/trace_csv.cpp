// tools/cli/requests/trace_csv.cpp -- rows of CSV; see trace_rows.h.
// SPDX-License-Identifier: Apache-2.0
//
// libcsv calls back for each cell and each end of a row. No exception may pass through libcsv, so that an exception of
// the row's taker waits in failure_. libcsv reads strictly: text behind a closed quote would otherwise go on to the
// next quote and swallow the rows between. Only a quote inside an unquoted cell (5'10" tall) is accepted.
#include <csv.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <vector>

#include "tools/cli/errors.h"
#include "tools/cli/requests/trace_rows.h"

namespace seqtile::cli {
namespace {

constexpr std::string_view kSeparators = ",;\t|";
constexpr unsigned char kLenient = CSV_REPALL_NL, kStrict = CSV_REPALL_NL | CSV_STRICT | CSV_STRICT_FINI;
constexpr size_t kCellBlockBytes = 1 << 12;

void* bounded_realloc(void* memory, size_t bytes) {
  return bytes > TraceRows::kMaxRowBytes ? nullptr : std::realloc(memory, bytes);
}

class CsvRows : public TraceRows {
 public:
  CsvRows(std::string path, char separator, OnRow on_row)
      : path_(std::move(path)), separator_(separator), on_row_(std::move(on_row)) {
    open();
  }
  CsvRows(const CsvRows&) = delete;
  CsvRows& operator=(const CsvRows&) = delete;
  ~CsvRows() override { csv_free(&parser_); }

  void feed(std::string_view bytes) override {
    while (!bytes.empty()) {
      const bool is_parsed = !is_skipping_;
      const size_t done = is_parsed ? parse(bytes, kStrict) : skip_line(bytes);
      count_lines(bytes.substr(0, done));
      bytes.remove_prefix(done);
      if (!is_parsed || bytes.empty()) continue;
      if (csv_error(&parser_) != CSV_EPARSE) refuse_long_row();
      if (parser_.quoted) leave_out("text follows a closed quote");
      else bytes.remove_prefix(parse(bytes.substr(0, 1), kLenient));
    }
  }

  void finish() override {
    if (is_skipping_) return;
    csv_set_opts(&parser_, kStrict);
    const bool is_open = csv_fini(&parser_, take_cell, take_end, this) != 0;
    if (failure_) std::rethrow_exception(failure_);
    if (is_open) leave_out("a quote is not closed");
  }

 private:
  void open() {
    csv_init(&parser_, kStrict);
    csv_set_delim(&parser_, static_cast<unsigned char>(separator_));
    csv_set_realloc_func(&parser_, bounded_realloc);
    csv_set_blk_size(&parser_, kCellBlockBytes);
  }

  size_t parse(std::string_view bytes, unsigned char options) {
    csv_set_opts(&parser_, options);
    const size_t done = csv_parse(&parser_, bytes.data(), bytes.size(), take_cell, take_end, this);
    if (failure_) std::rethrow_exception(failure_);
    return done;
  }

  /// Counts lines, which end with LF, CR LF or CR.
  void count_lines(std::string_view bytes) {
    if (bytes.empty()) return;
    newlines_ += std::count(bytes.begin(), bytes.end(), '\n') - (ended_in_return_ && bytes.front() == '\n');
    for (size_t at = bytes.find('\r'); at != std::string_view::npos; at = bytes.find('\r', at + 1))
      newlines_ += at + 1 == bytes.size() || bytes[at + 1] != '\n';
    ended_in_return_ = bytes.back() == '\r';
  }

  /// Skips the rest of a line that is left out; the parser starts anew behind it. Returns the bytes skipped.
  size_t skip_line(std::string_view bytes) {
    const size_t end = bytes.find_first_of("\r\n");
    if (end == std::string_view::npos) return bytes.size();
    is_skipping_ = false;
    csv_free(&parser_);
    open();
    line_ = first_line_ = newlines_ + 2;
    is_behind_return_ = bytes[end] == '\r';
    return end + 1;
  }

  void leave_out(const char* problem) {
    on_row_({first_line_, std::max(first_line_, newlines_ + 1), {}, problem});
    clear();
    is_skipping_ = true;
  }

  [[noreturn]] void refuse_long_row() const {
    bad_input(fmt::format("--requests {}: the row at line {} is longer than {} bytes; is a quote in it not closed?",
                          path_, first_line_, kMaxRowBytes));
  }

  void clear() {
    text_.clear();
    ends_.clear();
  }

  static void take_cell(void* text, size_t size, void* self) noexcept {
    static_cast<CsvRows*>(self)->guard([&](CsvRows& rows) { rows.add_cell({static_cast<const char*>(text), size}); });
  }
  static void take_end(int character, void* self) noexcept {
    static_cast<CsvRows*>(self)->guard([&](CsvRows& rows) { rows.end_row(character); });
  }
  template <class Step>
  void guard(Step step) noexcept {
    if (failure_) return;
    try {
      step(*this);
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  void add_cell(std::string_view cell) {
    if (cell.empty() && separator_ == ' ') return;  // within a run of spaces, or at an end of the line
    line_ += std::count(cell.begin(), cell.end(), '\n');
    if (text_.size() + cell.size() > kMaxRowBytes) refuse_long_row();
    text_ += cell;
    ends_.push_back(text_.size());
  }

  void end_row(int character) {
    const bool is_second_half = ends_.empty() && character == '\n' && is_behind_return_;  // the LF of a CR LF
    if (!ends_.empty()) hand_on();
    if (!is_second_half) ++line_;
    first_line_ = line_;
    is_behind_return_ = character == '\r';
  }

  void hand_on() {
    cells_.clear();
    size_t begin = 0;
    for (const size_t end : ends_) {
      cells_.push_back(std::string_view(text_).substr(begin, end - begin));
      begin = end;
    }
    if (text_.find('\0') == std::string::npos) on_row_({first_line_, line_, cells_, {}});
    else on_row_({first_line_, line_, {}, "has NUL bytes"});
    clear();
  }

  std::string path_;
  csv_parser parser_{};
  char separator_;
  OnRow on_row_;
  std::exception_ptr failure_;
  std::string text_;          ///< the row's cells, one behind the other
  std::vector<size_t> ends_;  ///< ends of the cells in text_
  std::vector<std::string_view> cells_;
  int64_t newlines_ = 0;  ///< newlines in all bytes parsed so far
  int64_t first_line_ = 1, line_ = 1;
  bool is_behind_return_ = false, is_skipping_ = false, ended_in_return_ = false;
};

}  // namespace

std::unique_ptr<TraceRows> make_csv_rows(const std::string& path, char separator, TraceRows::OnRow on_row) {
  return std::make_unique<CsvRows>(path, separator, std::move(on_row));
}

char separator_of(std::string_view head) {
  size_t counts[kSeparators.size()] = {}, spaces = 0;
  bool is_quoted = false, has_text = false;
  for (const char c : head) {
    if (c == '"') is_quoted = !is_quoted;
    if (!is_quoted && (c == '\n' || c == '\r') && has_text) break;
    has_text = has_text || (c != '\n' && c != '\r');
    if (is_quoted) continue;
    spaces += c == ' ';
    if (const size_t at = kSeparators.find(c); at != std::string_view::npos) ++counts[at];
  }
  const size_t most = static_cast<size_t>(std::max_element(std::begin(counts), std::end(counts)) - counts);
  return counts[most] == 0 && spaces > 0 ? ' ' : kSeparators[most];
}

}  // namespace seqtile::cli
