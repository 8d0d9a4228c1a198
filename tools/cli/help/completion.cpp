// tools/cli/help/completion.cpp -- see completion.h.
// SPDX-License-Identifier: Apache-2.0
//
// Both scripts find the command that the words before the cursor name. They then offer the values of the flag before
// the cursor, or flags if the word begins with "-", or else subcommands and arguments.
#include "tools/cli/help/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace seqtile::cli {
namespace {

std::string patterns_of(const std::string& path, const FlagEntry& flag) {
  std::vector<std::string> patterns;
  for (const std::string& name : flag.names) patterns.push_back(fmt::format("\"{} {}\"", path, name));
  return fmt::format("{}", fmt::join(patterns, " | "));
}

/// The words that complete a command without a flag: subcommands, or values of arguments.
std::vector<std::string> words_of(const CommandEntry& command, const std::vector<std::string>& operations) {
  std::vector<std::string> words = command.commands;
  for (const FlagEntry& flag : command.flags) {
    if (flag.positional == "operation") words.insert(words.end(), operations.begin(), operations.end());
    else if (!flag.positional.empty()) words.insert(words.end(), flag.choices.begin(), flag.choices.end());
  }
  return words;
}

bool takes_files(const CommandEntry& command) {
  for (const FlagEntry& flag : command.flags)
    if (!flag.positional.empty() && (flag.takes_file() || flag.positional == "file")) return true;
  return false;
}

std::vector<std::string> names_of(const CommandEntry& command) {
  std::vector<std::string> names;
  for (const FlagEntry& flag : command.flags) names.insert(names.end(), flag.names.begin(), flag.names.end());
  return names;
}

std::string paths_pattern(std::span<const CommandEntry> table) {
  std::vector<std::string> paths;
  for (const CommandEntry& command : table)
    if (!command.path.empty()) paths.push_back(fmt::format("\"{}\"", command.path));
  return fmt::format("{}", fmt::join(paths, " | "));
}

/// An entry of zsh's _describe, "name:description" in single quotes.
std::string described(const std::string& name, const std::string& description) {
  std::string text;
  for (const char c : description) text += c == '\'' ? "'\\''" : c == ':' ? "\\:" : std::string(1, c);
  return fmt::format("'{}:{}'", name, text);
}

}  // namespace

std::string bash_completion(std::span<const CommandEntry> table, const std::vector<std::string>& operations) {
  std::string text = fmt::format(R"(# Completion of seqtile for bash; made by `seqtile completion bash`.
_seqtile() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "${{command:+$command }}$word" in
      {}) command="${{command:+$command }}$word" ;;
    esac
  done
  case "$command $before" in
)",
                                 paths_pattern(table));
  for (const CommandEntry& command : table)
    for (const FlagEntry& flag : command.flags) {
      if (flag.names.empty() || flag.value.empty()) continue;
      const std::string offer = flag.takes_file() ? "$(compgen -f -- \"$current\")"
                                : flag.choices.empty()
                                    ? ""
                                    : fmt::format("$(compgen -W \"{}\" -- \"$current\")", fmt::join(flag.choices, " "));
      text += fmt::format("    {}) COMPREPLY=({}); return ;;\n", patterns_of(command.path, flag), offer);
    }
  text += "  esac\n  local flags=\"\" words=\"\" files=\"\"\n  case \"$command\" in\n";
  for (const CommandEntry& command : table)
    text += fmt::format("    \"{}\") flags=\"{}\" words=\"{}\" files={} ;;\n", command.path,
                        fmt::join(names_of(command), " "), fmt::join(words_of(command, operations), " "),
                        takes_files(command) ? "yes" : "\"\"");
  return text + R"(  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$current"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    [[ -n $files ]] && COMPREPLY+=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _seqtile seqtile
)";
}

std::string zsh_completion(std::span<const CommandEntry> table, const std::vector<std::string>& operations) {
  std::string text = fmt::format(R"(#compdef seqtile
# Completion of seqtile for zsh; made by `seqtile completion zsh`.
_seqtile() {{
  local place="" word
  local -a flags items
  local -i i
  for ((i = 2; i < CURRENT; i++)); do
    word="${{place:+$place }}${{words[i]}}"
    case "$word" in
      {}) place="$word" ;;
    esac
  done
  case "$place ${{words[CURRENT-1]}}" in
)",
                                 paths_pattern(table));
  for (const CommandEntry& command : table)
    for (const FlagEntry& flag : command.flags) {
      if (flag.names.empty() || flag.value.empty()) continue;
      const std::string offer = flag.takes_file()      ? "_files"
                                : flag.choices.empty() ? "_message '" + flag.value + "'"
                                                       : fmt::format("compadd -- {}", fmt::join(flag.choices, " "));
      text += fmt::format("    {}) {}; return ;;\n", patterns_of(command.path, flag), offer);
    }
  text += "  esac\n  case \"$place\" in\n";
  for (const CommandEntry& command : table) {
    text += fmt::format("    \"{}\")\n      flags=(", command.path);
    for (const FlagEntry& flag : command.flags)
      for (const std::string& name : flag.names) text += "\n        " + described(name, flag.description);
    text += ")\n      items=(";
    for (const std::string& word : words_of(command, operations)) {
      std::string about;
      for (const CommandEntry& other : table)
        if (other.path == (command.path.empty() ? word : command.path + " " + word)) about = other.description;
      text += "\n        " + described(word, about);
    }
    text +=
        fmt::format(")\n      {};;\n", takes_files(command) ? "[[ ${words[CURRENT]} == -* ]] || _files\n      " : "");
  }
  return text + R"(  esac
  if [[ ${words[CURRENT]} == -* ]]; then
    _describe flag flags
  else
    _describe word items
  fi
}
_seqtile "$@"
)";
}

}  // namespace seqtile::cli
