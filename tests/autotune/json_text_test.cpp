// tests/autotune/json_text_test.cpp -- JSON as people write it, and refusals of other files given in its place.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "autotune/text/json_text.h"
#include "seqtile/error.h"

namespace seqtile::testing {
namespace {

using namespace std::string_literals;
using autotune::JsonText;

JsonText read(const std::string& text, bool allows_non_finite = true) {
  return autotune::read_json(text, "a.json", allows_non_finite);
}

std::string refusal(const std::string& text, bool allows_non_finite = true) {
  try {
    read(text, allows_non_finite);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    const std::string line = error.what();
    CHECK(line.starts_with("a.json: no JSON: "));
    return line.substr(17);
  }
  return "accepted";
}

}  // namespace

TEST_CASE("json text: a mark, ends of lines and Python's numbers are read", "[autotune]") {
  const JsonText json =
      read("\xEF\xBB\xBF{\r\n\"a\": [NaN, Infinity, -Infinity, 1.5],\r\"b\": \"NaN \\\"Infinity\"}\r\n");
  CHECK(std::isnan(json.value["a"][0].get<double>()));
  CHECK(json.value["a"][1].get<double>() == INFINITY);
  CHECK(json.value["a"][2].get<double>() == -INFINITY);
  CHECK(json.value["a"][3] == 1.5);
  CHECK(json.value["b"] == "NaN \"Infinity");
  CHECK(json.repeated.empty());
  CHECK(read("[0, -0, 0.5, -1.5e+3, 1E-2, 10]").value == nlohmann::json({0, 0, 0.5, -1500, 0.01, 10}));
  CHECK(read(R"({"a": {"b": 99999999999999999999, "c": 1e30}})").large ==
        std::map<std::string, std::string>{{"a.b", "99999999999999999999"}});
  CHECK(refusal("{\"a\": NaN}", false) == "line 1, column 7: NaN is Python's; a finite number is wanted");
}

TEST_CASE("json text: of a name that stands twice the last value counts, and a difference is said", "[autotune]") {
  const JsonText json =
      read(R"({"a": 1, "b": {"c": 2, "c": [2]}, "a": 1, "d": {"x": 1}, "d": {"x": 1}, "e": 1, "e": 2})");
  CHECK(json.value["b"]["c"] == nlohmann::json::array({2}));
  CHECK(json.value["e"] == 2);
  CHECK(json.repeated == std::vector<std::string>{"b.c stands twice, as 2 and as an array; the last one counts",
                                                  "e stands twice, as 1 and as 2; the last one counts"});
}

TEST_CASE("json text: mistakes have their place and their cause", "[autotune]") {
  for (const auto& [text, why] : std::initializer_list<std::pair<std::string, std::string>>{
           {"{\n  // as in the paper\n}", "line 2, column 3: a comment; JSON has none, take it away"},
           {"{ /* x */ }", "line 1, column 3: a comment"},
           {"# x\n{}", "line 1, column 1: a comment"},
           {"{\"a\": [1, 2,\n ]}", "line 1, column 12: a comma before ']'; take it away"},
           {"{\"a\": 1,}", "line 1, column 8: a comma before '}'"},
           {"{'a': 1}", "line 1, column 2: a quotation mark that JSON does not have; write '\"'"},
           {"{\xE2\x80\x9C"
            "a: 1}",
            "line 1, column 2: a quotation mark"},
           {"{\"\xC3\xA9\": True}", "line 1, column 7: True is Python's; JSON has true"},
           {"{\"a\": None}", "line 1, column 7: None is Python's; JSON has null"},
           {"{a: 1}", "line 1, column 2: a without '\"'; names and texts stand in '\"'"},
           {"{\"a\": nan}", "line 1, column 7: nan is no number of JSON; write NaN"},
           {"{\"a\" 1}", "line 1, column 6: a ':' is missing before it"},
           {"{\"a\": 1\n \"b\": 2}", "line 2, column 2: a ',' is missing before it"},
           {"[1 2]", "line 1, column 4: a ',' is missing before it"},
           {"{\"a\": [1] \"b\": 2}", "line 1, column 11: a ',' is missing before it"},
           {"{\"a\": {\"c\": 1} \"b\": 2}", "line 1, column 16: a ',' is missing before it"},
           {"[[1] [2]]", "line 1, column 6: a ',' is missing before it"},
           {"{\"a\": 1,, \"b\": 2}", "line 1, column 9: a value or a name is missing before this ','"},
           {"{\"a\": , \"b\": 2}", "line 1, column 7: a value or a name is missing before this ','"},
           {"{\"a\": }", "line 1, column 7: a value is missing before this '}'"},
           {"{\"a\", \"b\": 2}", "line 1, column 5: a ':' and a value are missing before this ','"},
           {"{\"a\": 1, \"b\"}", "line 1, column 13: a value is missing before this '}'"},
           {"[1: 2]", "line 1, column 3: a ':' where no name is before it; a ',' is wanted"},
           {"{\"a\": 1}\n{\"a\": 2}", "line 2, column 1: another '{' behind the end of the value: two files in one"},
           {"{\"a\": 1} xyz\n",
            "line 1, column 10: there is more text behind the end of the value: 'xyz'; take it away"},
           {"{\"a\": 1},", "line 1, column 9: there is more text behind the end of the value: ','"},
           {"{\"a\": 1} // x", "line 1, column 10: a comment"},
           {"{\"a\": 1}\0"s, "line 1, column 9: a zero byte: the file is damaged"},
           {"\xEF\xBB\xBF\xEF\xBB\xBF{}", "line 1, column 1: one more mark of UTF-8 (U+FEFF)"},
           {"{\"a\":\xE2\x80\x8B"
            "1}",
            "line 1, column 6: U+200B where a value"},
           {"{\"a\": [1}", "line 1, column 9: '}' where the '[' of line 1, column 7 is to be closed"},
           {"{\"a\": 1}}", "line 1, column 9: '}' closes nothing"},
           {"{\"a\":\n {\"b\": 1", "line 2, column 2: '{' is not closed: the file is cut off; get it again"},
           {"{\"a\": \"b", "line 1, column 7: a text that does not end: the file is cut off"},
           {"{\"a\": \"b\n\"}", "line 1, column 7: a text that does not end in its line"},
           {"{\n<<<<<<< HEAD\n}", "line 2, column 1: a conflict of git; resolve it"},
           {"{\"a\":\xC2\xA0"
            "1}",
            "line 1, column 6: a space that JSON does not have (U+00A0)"},
           {"model_type: llama", "line 1, column 1: model_type without '\"'; a file of JSON begins with '{'"},
           {"{\"a\": @}", "line 1, column 7: '@' where a value or a name of JSON is to stand; take it away"},
           {"{\"a\": \xE9}", "line 1, column 7: byte 233 where a value"},
           {"{\"a\": 1e999}", "line 1, column 7: 1e999 is too large"},
           {"{\"a\": \"\\x\"}", "line 1, column 9: a '\\' before what JSON does not escape; write '\\\\'"},
           {"{\"a\": \"\\u12\"}", "line 1, column 12: \\u without four hexadecimal digits behind it"},
           {"{\"a\": \"\\ud800\"}", "line 1, column 14: half of a pair of \\u escapes (a surrogate); write both"},
           {"{\"a\": \"\xE9\"}", "line 1, column 9: a byte that is not UTF-8, perhaps of Latin-1; convert it: iconv"},
           {"{\"a\": \"b\0\"}"s, "line 1, column 9: a zero byte in a text: the file is damaged; get it again"},
           {"{\"a\": \"\t\"}", "line 1, column 8: a control character in a text; write it as \\t"},
       }) {
    INFO(text);
    CHECK_THAT(refusal(text), Catch::StartsWith(why));
  }
  for (const char* number : {"01", "-007", "+1", ".5", "1.", "1.e5", "1e", "0x1F", "1_000", "--1", "1-2", "+Infinity"})
    CHECK_THAT(refusal(fmt::format("{{\"a\": {}}}", number)),
               Catch::StartsWith(fmt::format("line 1, column 7: {} is no number of JSON", number)));
  std::string deep(2'000'000, '[');
  CHECK_THAT(refusal(deep), Catch::StartsWith("line 1, column 201: 201 brackets are open here, at most 200"));
  CHECK(read(std::string(200, '[') + std::string(200, ']')).value.size() == 1);
}

TEST_CASE("json text: what is no text in UTF-8 is told by its first bytes", "[autotune]") {
  const auto wide = [](const std::string& text, size_t before, size_t after) {
    std::string bytes;
    for (const char c : text) bytes += std::string(before, '\0') + c + std::string(after, '\0');
    return bytes;
  };
  for (const auto& [bytes, what] : std::initializer_list<std::pair<std::string, std::string>>{
           {"<!DOCTYPE html><html></html>", "an HTML page"},
           {"\n <html lang=en>", "an HTML page"},
           {"<?xml version=\"1.0\"?><a/>", "XML"},
           {"version https://git-lfs.github.com/spec/v1\noid sha256:0",
            "a pointer of git-lfs, not the file itself; run"},
           {"../../blobs/0f1e2d", "a link that was copied as text"},
           {"/annex/objects/MD5-s1--0", "a pointer of git-annex"},
           {"\xFF\xFE" + wide("{}", 0, 1), "text in UTF-16LE; convert it: iconv -f UTF-16LE -t UTF-8"},
           {"\xFE\xFF" + wide("{}", 1, 0), "text in UTF-16BE"},
           {wide("{\"a\"", 0, 1), "text in UTF-16LE"},
           {wide("{\"a\"", 1, 0), "text in UTF-16BE"},
           {"\xFF\xFE\0\0"s + wide("{}", 0, 3), "text in UTF-32LE"},
           {wide("{}", 3, 0), "text in UTF-32BE"},
           {"\x1F\x8B\x08", "compressed with gzip; unpack it with `gunzip`"},
           {"PK\x03\x04xyz", "a zip archive"},
           {"GGUF\x03", "a GGUF file of weights"},
           {"\x80\x04\x95", "a pickle of Python"},
           {"\x08\x01\0\0\0\0\0\0{\"a\":1}"s, "a safetensors file of weights"},
           {"PAR1", "a Parquet file"},
           {"---\na: 1\n", "YAML"},
           {"\x07\xC8\x0D\x01\x02\x03\x04"
            "ab",
            "no text but binary data"},
           {"SQLite format 3\0xyz"s, "an SQLite database"},
           {"", "empty; get the file again"},
           {" \n\t", "empty"},
           {std::string(64, '\0'), "zero bytes"},
       })
    CHECK_THAT(refusal(bytes), Catch::StartsWith(what));
}

TEST_CASE("json text: texts that are changed at random are read or refused with one line", "[autotune]") {
  const std::string text =
      "{\"a\": [1, 2.5e3, -Infinity], \"b\": {\"c\": \"x\\n\", \"c\": null}, \"d\": true, \"d\": NaN}";
  constexpr std::string_view kBytes = "{}[]\",:019-eE.nNtI\\ \n\xff\0/#'";
  std::mt19937 random(7);
  for (int round = 0; round < 4000; ++round) {
    std::string changed = text;
    for (uint32_t count = 1 + random() % 3; count > 0; --count) {
      const size_t at = random() % changed.size();
      if (random() % 2) changed[at] = kBytes[random() % kBytes.size()];
      else changed.erase(at, 1 + random() % 5);
      if (changed.empty()) changed = "{";
    }
    const std::string line = refusal(changed);
    CHECK(line.find('\n') == std::string::npos);
    CHECK_FALSE(line.empty());
  }
}

}  // namespace seqtile::testing
