// tests/tools/trace_test.cpp -- the reader of request traces: dialects, layouts, broken rows, foreign files, memory.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/requests/trace.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "seqtile/error.h"
#include "tools/cli/requests/trace_cells.h"

namespace seqtile::cli {
namespace {

using Catch::Contains;
using namespace std::string_literals;
using Tokens = std::vector<std::pair<int64_t, int64_t>>;

/// A file that its object removes.
class File {
 public:
  explicit File(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = fmt::format("trace_test_{}.txt", getpid());
};

struct Read {
  Tokens tokens;
  TraceSummary summary;
  std::string error;  ///< the message, without `path`
};

Read read(const std::string& bytes, TraceOptions options = {}) {
  const File file(bytes);
  options.path = file.path();
  Read read;
  try {
    read.summary = read_trace(options, [&](const TraceRequest& r) { read.tokens.emplace_back(r.prompt, r.output); });
  } catch (const Error& error) {
    read.error = error.what();
  }
  return read;
}

std::string problem_of(const std::string& bytes, TraceOptions options = {}) {
  const Read found = read(bytes, options);
  CHECK(found.error == "");
  REQUIRE(found.summary.broken_rows == 1);
  return found.summary.problems.at(0);
}

const std::string kAzure = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
const Tokens kTwo = {{374, 44}, {396, 109}};

std::string gzip(const std::string& bytes) {
  const File file("");
  gzFile out = gzopen(file.path().c_str(), "wb");
  gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(out);
  std::ifstream in(file.path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("trace: public layouts are known by their headers", "[tools]") {
  const Read azure =
      read(kAzure + "2024-05-10 00:00:00.009930+00:00,374,44\n2024-05-10 00:00:02.509930+00:00,396,109\n");
  CHECK(azure.tokens == kTwo);
  CHECK(azure.summary.layout == "azure");
  CHECK(azure.summary.duration_s.value() == Approx(2.5));
  CHECK((azure.summary.first_line == 2 && azure.summary.last_line == 3));
  const std::string names = "Request tokens,Response tokens,Total tokens,Log Type\n";
  const Read burst = read("Timestamp,Model," + names + "5,ChatGPT,374,44,418,API log\n45,GPT-4,396,109,505,API log\n");
  CHECK(burst.tokens == kTwo);
  CHECK((burst.summary.layout == "burstgpt" && burst.summary.duration_s == 40));
  CHECK(read("Timestamp,Session ID,Elapsed time,Model," + names + "5.2,a-b,3.21,m,374,44,418,x\n").tokens ==
        Tokens{{374, 44}});
  const Read mooncake = read(
      "{\"timestamp\": 0, \"input_length\": 374, \"output_length\": 44, \"hash_ids\": [0, 1]}\n"
      "{\"timestamp\": 3052, \"input_length\": 396, \"output_length\": 109, \"hash_ids\": [[2], {\"input_length\": "
      "3}]}\n");
  CHECK(mooncake.tokens == kTwo);
  CHECK((mooncake.summary.layout == "mooncake" && mooncake.summary.duration_s == Approx(3.052)));
  const Read bailian = read(
      "{\"chat_id\": 1, \"timestamp\": 61.5, \"input_length\": 374, \"output_length\": 44}\n"
      "{\"chat_id\": 2, \"timestamp\": 63.5, \"input_length\": 396, \"output_length\": 109}");
  CHECK((bailian.summary.layout == "bailian" && bailian.summary.duration_s == 2));
}

TEST_CASE("trace: dialects of CSV say the same", "[tools]") {
  const std::string rows = "374,44\n396,109\n";
  for (const std::string& bytes :
       {"ContextTokens,GeneratedTokens\n" + rows, "ContextTokens,GeneratedTokens\r\n374,44\r\n\r\n396,109"s,
        "ContextTokens,GeneratedTokens\r374,44\r396,109\r"s,
        "\xEF\xBB\xBF"
        "ContextTokens,GeneratedTokens\n" +
            rows,
        "\n\ncontext_tokens , Generated-Tokens\n" + rows, "CONTEXT TOKENS,generated tokens\n" + rows,
        "\"ContextTokens\",\"GeneratedTokens\"\n\"374\",\"44\"\n\" 396 \",\"109\"\n"s,
        "ContextTokens;GeneratedTokens\n374,0;44,00\n396;109\n"s,
        "ContextTokens\tGeneratedTokens\n374\t44\n396\t109\n"s, "ContextTokens|GeneratedTokens\n374|44\n396|109\n"s,
        "sep=;\nContextTokens;GeneratedTokens\n374;44\n396;109\n"s,
        "ContextTokens,GeneratedTokens\n374.0,44.00\n3.96e2,109.\n"s,
        "prompt,GeneratedTokens,ContextTokens\n\"a, \"\"b\"\"\nc\",44,374\n5'10\" tall,109,396\n"s,
        "GeneratedTokens,ContextTokens\n44,374,,\n109,396\n"s, "ContextTokens GeneratedTokens\n374 44\n396 109\n"s,
        "  ContextTokens   GeneratedTokens  \n  374      44\n\n   \n\"396\"     109 \n"s,
        "\"CONTEXT TOKENS\" \"generated tokens\"\r\n374 44\r\n396 109\r\n"s,
        "sep= \nContextTokens GeneratedTokens\n374 44\n396  109\n"s}) {
    INFO(bytes);
    const Read found = read(bytes);
    CHECK(found.error == "");
    CHECK(found.tokens == kTwo);
    CHECK(found.summary.broken_rows == 0);
  }
}

TEST_CASE("trace: lines are counted through quoted cells and empty lines", "[tools]") {
  CHECK_THAT(problem_of(kAzure + "\"a\n\nb\",1,1\n\nc,x,2\n"), Contains("line 6: ContextTokens 'x'"));
  CHECK_THAT(problem_of("TIMESTAMP,ContextTokens,GeneratedTokens\r\na,1,1\r\n\r\nb,0,2\r\n"), Contains("line 4:"));
  CHECK_THAT(problem_of(kAzure + "a,1,1\n\"b\nc\",-3,1\n"), Contains("lines 3 to 4: ContextTokens '-3'"));
  for (const std::string end : {"\n", "\r", "\r\n"}) {
    const Read found =
        read("ContextTokens,GeneratedTokens" + end + "1,1" + end + "2,\"2\"x" + end + "3,3" + end + "4,x" + end);
    REQUIRE(found.summary.problems.size() == 2);
    CHECK_THAT(found.summary.problems[0], Contains("line 3: text follows a closed quote"));
    CHECK_THAT(found.summary.problems[1], Contains("line 5: GeneratedTokens 'x'"));
  }
}

TEST_CASE("trace: a row that cannot be used is left out and named", "[tools]") {
  const std::string good = "t,374,44\n";
  for (const auto& [row, said] :
       std::vector<std::pair<std::string, std::string>>{{"t,,44\n", "line 3: ContextTokens is empty"},
                                                        {"t,374,\n", "line 3: GeneratedTokens is empty"},
                                                        {"t,0,44\n", "ContextTokens '0' is not a whole number from 1"},
                                                        {"t,374,-1\n", "'-1'"},
                                                        {"t,37.5,4\n", "'37.5'"},
                                                        {"t,nan,4\n", "'nan'"},
                                                        {"t,inf,4\n", "'inf'"},
                                                        {"t,4294967297,4\n", "4294967297"},
                                                        {"t,99999999999999999999,4\n", "9999"},
                                                        {"t,374\n", "2 columns, 3 expected"},
                                                        {"t,x,374,44\n", "4 columns, 3 expected"},
                                                        {"t,\"1,374\",44\n", "'1,374'"},
                                                        {"t,37\0004,44\n"s, "has NUL bytes"},
                                                        {"t,\"374\"5,44\n", "text follows a closed quote"},
                                                        {"t,1.000,44\n", "'1.000' may be 1 or 1000"},
                                                        {"t,\"12,000\",44\n", "'12,000' may be 12 or 12000"},
                                                        {"t,0x1F,44\n", "0x1F"}}) {
    INFO(row);
    const Read found = read(kAzure + good + row + good);
    CHECK(found.tokens == Tokens{{374, 44}, {374, 44}});
    REQUIRE(found.summary.broken_rows == 1);
    CHECK_THAT(found.summary.problems[0], Contains(said));
  }
}

TEST_CASE("trace: a quote that is not closed swallows no rows in silence", "[tools]") {
  const std::string header = "ContextTokens,GeneratedTokens,Text\n1,1,a\n";
  const Read open = read(header + "2,2,\"b\n3,3,c\n");
  CHECK(open.tokens == Tokens{{1, 1}});
  CHECK_THAT(open.summary.problems.at(0), Contains("lines 3 to 5: a quote is not closed") || Contains("lines 3 to 4"));
  const Read closed = read(header + "2,2,\"b\n3,3,c\n4,4,\"d\"\n5,5,e\n");
  CHECK(closed.tokens == Tokens{{1, 1}, {5, 5}});
  CHECK_THAT(closed.summary.problems.at(0), Contains("lines 3 to 5: text follows a closed quote"));
}

TEST_CASE("trace: broken JSON lines are left out and named", "[tools]") {
  const std::string good = "{\"input_length\": 374, \"output_length\": 44}\n";
  for (const auto& [row, said] : std::vector<std::pair<std::string, std::string>>{
           {"{\"input_length\": 374}\n", "line 2: has no output_length"},
           {"{\"input_length\": null, \"output_length\": 1}\n", "input_length is empty"},
           {"{\"input_length\": 3, \"input_length\": 4, \"output_length\": 1}\n", "has input_length twice"},
           {"{\"input_length\": [3], \"output_length\": 1}\n", "'an array'"},
           {"[1, 2]\n", "is not a JSON object"},
           {"{\"input_length\": 3, \n", "is not a JSON object on one line"},
           {"{\"input_length\": true, \"output_length\": 1}\n", "'true'"},
           {"{\"input_length\": 3.5, \"output_length\": 1}\n", "'3.5'"}}) {
    INFO(row);
    const Read found = read(good + row + "\r\n" + good);
    CHECK(found.tokens == Tokens{{374, 44}, {374, 44}});
    REQUIRE(found.summary.broken_rows == 1);
    CHECK_THAT(found.summary.problems[0], Contains(said));
  }
  CHECK(read("{\"output_length\": \"44\", \"input_length\": 374.0}").tokens == Tokens{{374, 44}});
  CHECK_THAT(read("{\n\"input_length\": 3,\n\"output_length\": 4\n}\n").error,
             Contains("no usable row; line 1: is not a JSON") && Contains("`jq -c .` writes one a line"));
}

TEST_CASE("trace: the first lines of JSON decide no more than others", "[tools]") {
  const std::string good =
      "{\"timestamp\": 1000, \"input_length\": 374, \"output_length\": 44}\n"
      "{\"timestamp\": 3500, \"input_length\": 396, \"output_length\": 109}\n";
  for (const auto& [row, said] : std::vector<std::pair<std::string, std::string>>{
           {"{\"trace\": \"of a day\", \"requests\": 2}\n", "line 1: has no input_length"},
           {"{\"timestamp\": 0, \"input_length\": 5}\n", "line 1: has no output_length"},
           {"{}\n", "line 1: has no input_length"},
           {"{\"input_length\": 3, \n", "line 1: is not a JSON object"}}) {
    INFO(row);
    const Read found = read(row + good);
    CHECK(found.error == "");
    CHECK(found.tokens == kTwo);
    CHECK(found.summary.duration_s == Approx(2.5));
    REQUIRE(found.summary.broken_rows == 1);
    CHECK_THAT(found.summary.problems[0], Contains(said));
  }
  const Read timeless = read("{\"input_length\": 1, \"output_length\": 2}\n" + good);
  CHECK(timeless.tokens == Tokens{{1, 2}, {374, 44}, {396, 109}});
  CHECK(timeless.summary.duration_s == Approx(2.5));
  CHECK(timeless.summary.unreadable_times == 1);
  // The layout with seconds is told from the one with milliseconds by a field that the first object lacks.
  const std::string chat = "{\"chat_id\": 1, \"timestamp\": 4, \"input_length\": 374, \"output_length\": 44}\n";
  CHECK(read("{\"timestamp\": 2, \"input_length\": 1, \"output_length\": 2}\n" + chat).summary.duration_s == 2);
  CHECK(read("{\"input_length\": 374.000, \"output_length\": 44.0}\n").tokens == Tokens{{374, 44}});
  CHECK_THAT(problem_of("{\"input_length\": \"1.000\", \"output_length\": 1}\n" + good), Contains("may be 1 or 1000"));
}

TEST_CASE("trace: values that JSON does not have cost their own column only", "[tools]") {
  const std::string good = "{\"timestamp\": 1, \"input_length\": 374, \"output_length\": 44, \"x\": 0}\n";
  for (const std::string value :
       {"NaN", "Infinity", "-Infinity", "[NaN, {\"a\": -Infinity}]", "1e999", "-1e999",
        "123456789012345678901234567890", R"("\ud800")", R"("\udc00 \ud83d\ude00 \ud800\n\"")", "\"\xE9 caf\xC3\xA9\"",
        "\"\xED\xA0\x80\"", "\"\xC0\xAF\"", "\"\xF0\x9F\"", "\"tab\t\""}) {
    const std::string row = "{\"x\": " + value + ", \"timestamp\": 3, \"input_length\": 396, \"output_length\": 109}\n";
    INFO(row);
    const Read found = read(good + row);
    CHECK(found.error == "");
    CHECK(found.tokens == kTwo);
    CHECK(found.summary.broken_rows == 0);
    CHECK(found.summary.duration_s == Approx(0.002));
    CHECK(read(row + good).tokens == Tokens{{396, 109}, {374, 44}});
  }
  const Read late = read(good + "{\"timestamp\": NaN, \"input_length\": 396, \"output_length\": 109}\n");
  CHECK(late.tokens == kTwo);
  CHECK(late.summary.unreadable_times == 1);
  for (const std::string value : {"NaN", "Infinity", "-Infinity", "1e999"})
    CHECK_THAT(problem_of(good + "{\"input_length\": " + value + ", \"output_length\": 1}\n"),
               Contains("line 2: input_length '" + value + "' is not a whole number"));
  for (const std::string& value : {"nan"s, "-NaN"s, "\"\0\""s, "\"\\x\""s, "01"s})
    CHECK_THAT(problem_of(good + "{\"x\": " + value + ", \"input_length\": 1, \"output_length\": 1}\n"),
               Contains("line 2: is not a JSON object"));
}

TEST_CASE("trace: columns are named by name or position", "[tools]") {
  const TraceOptions named{.prompt_column = "In tokens", .output_column = "out", .time_column = "at"};
  const Read found = read("at,in_tokens,OUT\n5,374,44\n8.5,396,109\n", named);
  CHECK(found.tokens == kTwo);
  CHECK(found.summary.duration_s == 3.5);
  const TraceOptions places{.prompt_column = "2", .output_column = "3", .time_column = "1"};
  CHECK(read("2,374,44\n3,396,109\n", places).tokens == kTwo);  // no header
  // The header names no known column.
  CHECK(read("a,b,c\n5,374,44\n6,396,109\n", places).tokens == kTwo);
  CHECK_THAT(read("5,374,44\n", {.prompt_column = "4", .output_column = "3"}).error,
             Contains("a position from 1 to 3"));
  CHECK_THAT(read("5,374,44\n6,396,109\n").error, Contains("positions") && Contains("--prompt-column 2"));
  CHECK_THAT(read("a,b\n1,2\n").error, Contains("line 1 (a, b)") && Contains("--prompt-column"));
  CHECK_THAT(read("a,b\n1,2\n", {.prompt_column = "c", .output_column = "b"}).error, Contains("no column 'c'"));
  CHECK_THAT(read("a,b\n1,2\n", {.prompt_column = "b", .output_column = "b"}).error,
             Contains("both prompt and output"));
  CHECK_THAT(read("ContextTokens,context_tokens,GeneratedTokens\n1,2,3\n").error, Contains("ContextTokens twice"));
  const std::string both = "ContextTokens,GeneratedTokens,input_tokens,output_tokens\n374,44,1,2\n396,109,1,2\n";
  CHECK_THAT(read(both).error, Contains("fits the layouts azure and tokens"));
  CHECK(read(both, {.layout = "Azure"}).tokens == kTwo);
  CHECK_THAT(read("a,b\n1,2\n", {.layout = "burstgpt"}).error, Contains("no column requesttokens"));
  CHECK(read("n,GeneratedTokens\n374,44\n396,109\n", {.prompt_column = "n"}).tokens == kTwo);
}

TEST_CASE("trace: a first row that names no two columns is refused by its cause", "[tools]") {
  for (const auto& [bytes, said] : std::vector<std::pair<std::string, std::string>>{
           {"prompt_tokens\n5\n", "line 1 (prompt_tokens) has one column; a trace has two or more"},
           {"5\n6\n", "line 1 (5) has one column"},
           {"# of May\n" + kAzure + "a,1,2\n", "begins with #; if it is a comment, take the line away"},
           {"// May\n" + kAzure + "a,1,2\n", "begins with //; if it is a comment"},
           {"#x\n" + kAzure + "a,1,2\n", "is a comment"},
           {"# x\n{\"input_length\": 1, \"output_length\": 2}\n", "is a comment"},
           {"prompt_tokens,out\n5,2\n",
            "has no column of output tokens that a known layout has; name it by --output-column"},
           {"{\"usage\": {\"prompt_tokens\": 5}}\n", "those in an object with a dot: usage.prompt_tokens"}}) {
    INFO(bytes);
    CHECK_THAT(read(bytes).error, Contains(said));
  }
  CHECK(read("#prompt_tokens,completion_tokens\n374,44\n396,109\n").tokens == kTwo);
  CHECK_THAT(problem_of("prompt_tokens,completion_tokens\n5,2\n# end\n"), Contains("line 3: is a comment"));
  CHECK_THAT(problem_of("prompt_tokens,completion_tokens\n5,2\n7\n"), Contains("line 3: 1 column, 2 expected"));
}

TEST_CASE("trace: columns in an object of JSON lines are named with dots", "[tools]") {
  const TraceOptions options{.prompt_column = "usage.prompt_tokens", .output_column = "usage.completion_tokens"};
  const std::string rows =
      "{\"id\": {\"prompt_tokens\": 1}, \"usage\": {\"prompt_tokens\": 374, \"d\": [{\"prompt_tokens\": 2}, 3], "
      "\"completion_tokens\": 44}}\n"
      "{\"usage\": {\"completion_tokens\": 109, \"d\": {\"e\": {\"f\": 1}}, \"prompt_tokens\": 396}, \"id\": 7}\n";
  const Read found = read(rows, options);
  CHECK(found.error == "");
  CHECK(found.tokens == kTwo);
  CHECK(found.summary.broken_rows == 0);
  CHECK_THAT(problem_of(rows + "{\"usage\": 5}\n", options), Contains("line 3: has no usage.prompt_tokens"));
  CHECK_THAT(
      problem_of("{\"input_length\": 1, \"output_length\": 2}\n{\"input_length\": {\"n\": 1}, \"output_length\": 2}\n"),
      Contains("line 2: input_length is an object; name the number in it as input_length.NAME"));
  CHECK_THAT(read(rows, {.prompt_column = "usage.x", .output_column = "usage.completion_tokens"}).error,
             Contains("has no column 'usage.x'"));
}

TEST_CASE("trace: files of another kind are refused by their name", "[tools]") {
  const auto utf16 = [](const std::string& text) {
    std::string wide;
    for (const char c : text) wide += c, wide += '\0';
    return wide;
  };
  for (const auto& [bytes, said] : std::vector<std::pair<std::string, std::string>>{
           {"\xFF\xFE" + utf16(kAzure), "is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"},
           {utf16(kAzure), "is UTF-16; convert it: iconv -f UTF-16LE"},
           {"\0a\0b"s, "iconv -f UTF-16BE"},
           {"\xFF\xFE\0\0a\0\0\0"s, "UTF-32"},
           {"\x28\xB5\x2F\xFD rest", "zstd -dc"},
           {"PK\x03\x04 rest", "zip"},
           {"PAR1 rest", "Parquet"},
           {"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
           {"SQLite format 3\0"s + std::string(100, '\1'),
            "is an SQLite database, such as the stores of --cache and --artifacts; give a trace: CSV or JSON lines, "
            "one "
            "request a row (docs/traces.md)"},
           {"GGUF\3\0\0\0"s, "is a GGUF file of weights; give a trace"},
           {"\x7F"
            "ELF\2\1\1",
            "is a program; give a trace"},
           {"%PDF-1.7\n", "is a PDF; give a trace"},
           {" <!DOCTYPE html>\n", "HTML"},
           {"[{\"input_length\": 3}]\n", "jq -c '.[]' '"},
           {"[10, 5]\n[11, 6]\n",
            "has JSON arrays for rows; give their numbers names, as they stand in a row: jq -c "
            "'{input_tokens: .[0], output_tokens: .[1]}' '"},
           {" [\n [10, 5],\n [11, 6]]\n", "jq -c '.[] | {input_tokens: .[0], output_tokens: .[1]}' '"},
           {"", "is empty"},
           {" \n\n", "is empty"},
           {kAzure, "no row follows the names"},
           {kAzure + "a,b,c\n", "no usable row; line 2: ContextTokens 'b'"}}) {
    INFO(said);
    CHECK_THAT(read(bytes).error, Contains(said));
  }
}

TEST_CASE("trace: a row of names that is none is refused, and no other row is taken for it", "[tools]") {
  for (const auto& [row, said] : std::vector<std::pair<std::string, std::string>>{
           {"TIME,\"Context\"Tokens,GeneratedTokens\n", "line 1, the first row, text follows a closed quote"},
           {"\nTIME,Context\0Tokens,GeneratedTokens\n"s, "line 2, the first row, has NUL bytes"},
           {"TIME,\"ContextTokens,GeneratedTokens\n", "the first row, a quote is not closed"}}) {
    INFO(row);
    CHECK_THAT(read(row + "t,1,2\nContextTokens,GeneratedTokens,t\n3,4,t\n").error, Contains(said));
  }
}

TEST_CASE("trace: names of JSON lines are never data, even where they are numbers", "[tools]") {
  TraceOptions options;
  options.prompt_column = "1", options.output_column = "2";
  const Read named = read("{\"1\": 374, \"2\": 44}\n{\"1\": 396, \"2\": 109}\n", options);
  CHECK(named.error == "");
  CHECK(named.tokens == kTwo);
  CHECK(named.summary.broken_rows == 0);
  CHECK(read("{\"2\": 44, \"1\": 374}\n{\"1\": 396, \"2\": 109}\n", options).tokens == kTwo);
  CHECK_THAT(problem_of("{\n{\"input_length\": 374, \"output_length\": 44}\n"),
             Contains("line 1: is not a JSON object"));
}

TEST_CASE("trace: gzip is unpacked, and what is cut off is refused", "[tools]") {
  std::string text = kAzure;
  for (int i = 0; i < 50000; ++i) text += fmt::format("{},{},{}\n", i, 1 + i % 1009, i % 97);
  const std::string packed = gzip(text);
  CHECK(read(packed).tokens == read(text).tokens);
  CHECK(read(gzip(kAzure + "1,374,44\n") + gzip("2,396,109\n")).tokens == kTwo);
  CHECK_THAT(read(packed.substr(0, packed.size() / 2)).error, Contains("ends in the middle of its packed data"));
  std::string damaged = packed;
  damaged[packed.size() / 2] ^= 0x55;
  CHECK_THAT(read(damaged).error, Contains("packed data are damaged"));
}

TEST_CASE("trace: bytes behind packed data are zeros, another member, or an error", "[tools]") {
  const std::string one = gzip(kAzure + "1,374,44\n"), more = gzip("2,396,109\n");
  const std::string padding(600'000, '\0');
  CHECK(read(one + more).tokens == kTwo);
  CHECK(read(one + more + "\0"s).tokens == kTwo);
  CHECK(read(one + more + padding).tokens == kTwo);
  CHECK(read(gzip("") + one + gzip("") + more).tokens == kTwo);
  for (const std::string& rest :
       {"garbage"s, "\n"s, "2,396,109\n"s, "\0\0x"s, padding + "x", padding + more, more.substr(1)})
    CHECK_THAT(read(one + rest).error,
               Contains("other bytes follow its packed data, from byte ") && Contains("gzip -dc"));
  std::string damaged = more;
  damaged[1] = 'x';
  CHECK_THAT(read(one + damaged).error, Contains("packed data are damaged"));
  damaged[1] = more[1], damaged[2] = 7;
  CHECK_THAT(read(one + damaged).error, Contains("packed data are damaged"));
  for (const size_t bytes : {1, 2, 9, 15})
    CHECK_THAT(read(one + more.substr(0, bytes)).error, Contains("ends in the middle of its packed data"));
  CHECK_THAT(read(one.substr(0, 2)).error, Contains("ends in the middle of its packed data"));
}

TEST_CASE("trace: progress of a packed file counts its bytes as they are stored", "[tools]") {
  const std::string packed = gzip(kAzure + "1,374,44\n");
  const File file(packed);
  int64_t done = 0;
  read_trace(
      {.path = file.path()}, [](const TraceRequest&) {},
      [&](const TraceProgress& progress) { done = progress.bytes_done; });
  CHECK(done == static_cast<int64_t>(packed.size()));
}

TEST_CASE("trace: rows are the same wherever a block of the file ends", "[tools]") {
  for (const size_t shift : {0, 1, 2, 3, 7, 11}) {
    std::string csv = "ContextTokens,GeneratedTokens,Text\r\n", json;
    Tokens wanted;
    csv += "1,1," + std::string(262144 - 60 + shift, 'x') + "\r\n";
    json += "{\"input_length\":1,\"output_length\":1,\"t\":\"" + std::string(262144 - 80 + shift, 'x') + "\"}\n";
    wanted.emplace_back(1, 1);
    for (int i = 0; i < 20; ++i) {
      csv += fmt::format("{},\"{}\",\"a\"\"\r\n,\"\r\n", 100 + i, i);
      json += fmt::format("{{\"input_length\":{},\"output_length\":{}}}\n", 100 + i, i);
      wanted.emplace_back(100 + i, i);
    }
    CHECK(read(csv).tokens == wanted);
    CHECK(read(json).tokens == wanted);
  }
}

TEST_CASE("trace: a row without an end is an error, not all memory", "[tools]") {
  const std::string endless(20'000'000, 'x');
  CHECK_THAT(read("ContextTokens,GeneratedTokens\n1,\"" + endless).error,
             Contains("line 2 is longer than 16777216") && Contains("--requests trace_test_"));
  CHECK_THAT(read("{\"input_length\": 1, \"output_length\": 2}\n{\"a\": \"" + endless).error,
             Contains("line 2 is longer than 16777216") && Contains("--requests trace_test_"));
}

TEST_CASE("trace: times are dates or numbers, and duration is known or said to be unknown", "[tools]") {
  const auto seconds = [](const char* text, double unit_s = 1) { return read_time(text, unit_s).value_or(-1); };
  CHECK(seconds("1970-01-02 00:00:01.5") == 86401.5);
  CHECK(seconds("2024-05-10T02:00:00+02:00") == seconds("2024-05-10 00:00:00Z"));
  CHECK(seconds("2024/05/10 00:00:00 -0130") == seconds("2024-05-10T01:30:00"));
  CHECK(seconds("2500", 1e-3) == 2.5);
  CHECK(seconds("1715299200500") == Approx(1715299200.5));
  CHECK(seconds("1715299200500000000") == Approx(1715299200.5));
  for (const char* text : {"", "noon", "2024-02-30 00:00:00", "2024-05-10 25:00:00", "2024-05-10 00:00:00 CET", "nan"})
    CHECK_FALSE(read_time(text, 1));
  const Read unknown = read(kAzure + "noon,374,44\n5,396,109\n");
  CHECK(unknown.tokens == kTwo);
  CHECK_FALSE(unknown.summary.duration_s);
  CHECK(unknown.summary.unreadable_times == 1);
  CHECK(read(kAzure + "9,374,44\n5,396,109\n").summary.duration_s == 4);  // times in any order
  CHECK_FALSE(read("ContextTokens,GeneratedTokens\n1,2\n").summary.duration_s);
}

}  // namespace seqtile::cli
