// internevo-checkpoint inspect|verify|reshard|export|import: progress and one result on standard output, as JSON lines.
#include <signal.h>

#include <charconv>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint_tool/commands.h"

namespace {

using namespace internevo;
using namespace internevo::trainer;

constexpr const char* kUsage =
    "use internevo-checkpoint inspect DIR | verify DIR | reshard DIR OUT (--plan FILE | --files N) | "
    "export DIR OUT [--precision fp32|bf16] [--max-file-bytes N] | import FOLDER OUT [--files N]; what "
    "writes takes "
    "--leave-free-bytes N";

[[noreturn]] void refuse(const std::string& field, const std::string& value, const std::string& what) {
  throw Failure(
      Problem{StatusCode::badConfig, field + " " + what, field, nlohmann::json(value).dump(), kUsage});
}

/// Words, and options with one value each.
struct Arguments {
  std::vector<std::string> words;
  std::map<std::string, std::string> options;

  Arguments(int argc, char** argv, const std::set<std::string>& known, std::size_t count) {
    for (int i = 2; i < argc; ++i) {
      const std::string word = argv[i];
      if (word.rfind("--", 0) != 0) {
        words.push_back(word);
      } else if (known.count(word) == 0) {
        refuse(word, word, "is not known");
      } else if (++i >= argc) {
        refuse(word, word, "has no value");
      } else {
        options[word] = argv[i];
      }
    }
    if (words.size() != count)
      refuse("arguments", std::to_string(words.size()), "must be " + std::to_string(count) + " paths");
  }
  std::string text(const std::string& name) const {
    const auto found = options.find(name);
    return found == options.end() ? "" : found->second;
  }
  std::optional<std::int64_t> number(const std::string& name, std::int64_t largest) const {
    const auto found = options.find(name);
    if (found == options.end()) return std::nullopt;
    const std::string& value = found->second;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < 1 || number > largest) {
      refuse(name, value, value + " is no number from 1 to " + std::to_string(largest));
    }
    return number;
  }
};

constexpr std::int64_t kMostFiles = 100000;
constexpr const char* kLeaveFree = "--leave-free-bytes";

DiskMargin marginOf(const Arguments& a) {
  return {1, a.number(kLeaveFree, std::int64_t{1} << 62).value_or(0)};
}

OrderedJson runCommand(const std::string& command, int argc, char** argv) {
  if (command == "inspect") return inspectCommand(Arguments(argc, argv, {}, 1).words[0]);
  if (command == "verify") return verifyCommand(Arguments(argc, argv, {}, 1).words[0]);
  if (command == "reshard") {
    const Arguments a(argc, argv, {"--plan", "--files", kLeaveFree}, 2);
    if (a.options.count("--plan") + a.options.count("--files") == 2)
      refuse("--files", a.text("--files"), "and --plan exclude one another");
    return reshardCommand(a.words[0], a.words[1],
                          {a.text("--plan"), a.number("--files", kMostFiles), marginOf(a)});
  }
  if (command == "export") {
    const Arguments a(argc, argv, {"--precision", "--max-file-bytes", kLeaveFree}, 2);
    const std::string precision = a.text("--precision");
    if (!precision.empty() && precision != "fp32" && precision != "bf16") {
      refuse("--precision", precision, precision + " is neither fp32 nor bf16");
    }
    ExportOptions options;
    options.bf16 = precision == "bf16";
    options.largestFileBytes =
        a.number("--max-file-bytes", std::int64_t{1} << 50).value_or(options.largestFileBytes);
    options.leaveFree = marginOf(a);
    return exportCommand(a.words[0], a.words[1], options);
  }
  if (command == "import") {
    const Arguments a(argc, argv, {"--files", kLeaveFree}, 2);
    return importCommand(a.words[0], a.words[1], a.number("--files", kMostFiles), marginOf(a));
  }
  refuse("command", command, command.empty() ? "is missing" : command + " is not known");
}

int guarded(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  try {
    OrderedJson result = {{"event", "result"}, {"command", command}};
    withRemedy([] { return "give another checkpoint, or copy this one once more"; },
               [&] { result.update(runCommand(command, argc, argv)); });
    emitLine(result);
    return result.value("ok", true) ? 0 : exitCodeOf(StatusCode::checkpointError);
  } catch (const Failure& failure) {
    emitProblem(failure.problem());
    return exitCodeOf(failure.problem().code);
  } catch (const std::exception& error) {
    emitProblem({StatusCode::internal, error.what(), "", "", ""});
    return exitCodeOf(StatusCode::internal);
  }
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // write() tells that a file may not grow
  try {
    return guarded(argc, argv);
  } catch (...) {
    return 70;  // standard output is gone
  }
}
