// WireScript: calls that are made of a running server, in order, to record what it answers.
//
//   const WireScript& script = *FindWireScript("every_method");
//   Transcript transcript = script.play(script, "127.0.0.1:7433", clock);
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "tests/golden/transcript.h"

namespace sheaf::golden {

struct WireScript {
  const char* name;
  const char* about;
  // Those of the server that are not its defaults; whoever starts it sets them.
  std::map<std::string, int64_t> limits;
  // The server is empty, and nobody else calls it.
  Transcript (*play)(const WireScript& script, const std::string& address, const Clock& clock);
};

std::span<const WireScript> WireScripts();
// Null if there is none.
const WireScript* FindWireScript(std::string_view name);

}  // namespace sheaf::golden
