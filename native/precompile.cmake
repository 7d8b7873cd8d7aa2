# What makes compiling quicker: most of a first set-up is compiling.

# internevo_precompile(target [FROM holder] [HEADERS <a.h> ...]): what most files include is read once, not by each of them.
# The targets that share a holder's headers need the same options.
function(internevo_precompile target)
  cmake_parse_arguments(ARG "" "FROM" "HEADERS" ${ARGN})
  get_target_property(is_taken ${target} IMPORTED)
  if(is_taken)
    return()  # from another build (parts.cmake): nothing is compiled
  endif()
  if(ARG_FROM)
    target_precompile_headers(${target} REUSE_FROM ${ARG_FROM})
  else()
    target_precompile_headers(${target} PRIVATE <algorithm> <array> <chrono> <cmath> <cstdint> <cstring> <filesystem> <fstream>
      <functional> <map> <memory> <optional> <string> <vector> <nlohmann/json.hpp> ${ARG_HEADERS})
  endif()
endfunction()

# internevo_optimise_little(a.cpp ...): sources that mostly read and write JSON, none of them within the computation of a step. A third of
# what they take to compile is optimising the JSON library.
function(internevo_optimise_little)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -O1)
endfunction()
