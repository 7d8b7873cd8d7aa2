#include "trainer/products.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "checkpoint/file.h"
#include "trainer/failure.h"

namespace internevo::trainer {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kVariable = "INTERNEVO_CUDA_PRODUCTS";

std::string fileOf(const CheckpointConfig& checkpoint) {
  return (fs::path(checkpoint.directory) / kProductsFile).string();
}

/// Errors: Failure badConfig.
ProductChoices readChoices(const std::string& path, const std::string& field, const std::string& remedy) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  const bool read = file && (text << file.rdbuf());
  const Json document = read ? Json::parse(text.str(), nullptr, false) : Json();
  ProductChoices choices;
  try {
    if (!read || document.is_discarded()) throw std::invalid_argument("it is not a readable JSON document");
    choices.library = document.at("library").get<std::string>();
    for (const Json& each : document.at("products")) {
      ProductChoice choice;
      choice.product = each.at("product").get<std::string>();
      choice.algorithm = each.at("algorithm").get<std::string>();
      choices.products.push_back(std::move(choice));
    }
  } catch (const std::exception& error) {
    throw Failure(Problem{StatusCode::badConfig,
                          "recorded choices of products cannot be read from " + path + ": " + error.what(),
                          field, Json(path).dump(-1, ' ', false, Json::error_handler_t::replace), remedy});
  }
  return choices;
}

/// What a run that goes on finds beside its checkpoints; nothing where there is none.
ProductChoices choicesOf(const CheckpointConfig& checkpoint) {
  const std::string path = fileOf(checkpoint);
  if (!checkpoint.resumeLatest || !fs::exists(path)) return {};
  return readChoices(path, "checkpoint.directory",
                     "remove the file: products are then timed anew, and their bits may differ");
}

}  // namespace

ProductUses productsOf(const Config& c, const LocalShape& s, std::int64_t chunkRows) {
  const std::int64_t hidden = c.model.hiddenSize, tp = c.plan.tensorParallel;
  ProductUses uses;
  for (const auto& [inputs, outputs] :
       {std::pair{hidden, s.queryWidth + 2 * s.kvWidth}, std::pair{s.queryWidth, hidden},
        std::pair{hidden, 2 * s.ffnWidth}, std::pair{s.ffnWidth, hidden}})
    uses.linear.push_back({s.blockRows, inputs, outputs, c.precision, true, true, c.gradientPrecision});
  // The last of the slices of a vocabulary may be smaller than the others.
  const std::int64_t slice = (c.model.vocabularySize + tp - 1) / tp;
  for (const std::int64_t count : {slice, c.model.vocabularySize - slice * (tp - 1)}) {
    if (count > 0)
      uses.heads.push_back({s.blockRows, hidden, count, chunkRows, c.precision, c.gradientPrecision});
  }
  return uses;
}

ProductRequest productRequest(const Config& config) {
  const char* const asked = std::getenv(kVariable);
  const std::string how = asked == nullptr ? "" : asked;
  ProductRequest request;
  if (how == "first") {
    request.search = ProductSearch::first;
  } else if (!how.empty() && how != "timed") {
    request.search = ProductSearch::fixed;
    request.recorded =
        readChoices(how, kVariable, "give the path of a products.json, or timed, or first, or unset it");
  } else if (config.checkpoint) {
    request.recorded = choicesOf(*config.checkpoint);
  }
  return request;
}

void recordProducts(const Config& config, const ProductChoices& choices) {
  if (!config.checkpoint || choices.empty()) return;
  const std::string path = fileOf(*config.checkpoint), temporary = path + ".tmp";
  Json products = Json::array();
  for (const ProductChoice& each : choices.products)
    products.push_back({{"product", each.product}, {"algorithm", each.algorithm}});
  // Of other plans that the run went by: it may go back to one.
  const ProductChoices before = choicesOf(*config.checkpoint);
  for (const ProductChoice& each : before.products) {
    const bool known = std::any_of(choices.products.begin(), choices.products.end(),
                                   [&](const ProductChoice& own) { return own.product == each.product; });
    if (!known && before.library == choices.library)
      products.push_back({{"product", each.product}, {"algorithm", each.algorithm}});
  }
  const std::string text = Json{{"library", choices.library}, {"products", products}}.dump(1) + "\n";
  FileWriter file(temporary, static_cast<std::int64_t>(text.size()));
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  file.finish();
  std::error_code error;
  fs::rename(temporary, path, error);
  if (error) refuseFile(path, "cannot be written: " + error.message(), "make the directory writable");
  syncDirectory(config.checkpoint->directory);
}

}  // namespace internevo::trainer
