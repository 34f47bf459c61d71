#include "tests/crash/simulated_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace sheaf::crash {
namespace {

using Node = SimulatedDisk::Node;
using NodePtr = SimulatedDisk::NodePtr;

std::vector<std::string> Split(const std::string& path) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin < path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void Apply(const Node::Change& change, std::string& bytes) {
  if (change.is_truncation) {
    bytes.resize(static_cast<size_t>(change.offset), '\0');
    return;
  }
  const auto offset = static_cast<size_t>(change.offset);
  if (bytes.size() < offset + change.bytes.size()) bytes.resize(offset + change.bytes.size(), '\0');
  std::memcpy(bytes.data() + offset, change.bytes.data(), change.bytes.size());
}

void KeepFlushedBytes(Node& node) {
  if (!node.has_flushed_bytes) node.flushed_bytes = node.bytes;
  node.has_flushed_bytes = true;
}

// How much of what was not flushed a crash keeps.
class Survival {
 public:
  explicit Survival(Random& random)
      : random_(random),
        sector_(random.Chance(0.5) ? 512 : 4096),
        // Nothing and everything are the two ends that a machine meets most.
        keeps_all_(random.Below(4) == 0   ? 0.0
                   : random.Below(4) == 0 ? 1.0
                                          : random.Fraction()),
        is_extreme_(keeps_all_ == 0.0 || keeps_all_ == 1.0) {}

  int64_t sector() const { return sector_; }
  // Of `count` changes to one thing, the first so many.
  size_t Keep(size_t count) {
    if (is_extreme_) return keeps_all_ == 1.0 ? count : 0;
    return random_.Chance(keeps_all_) ? count : random_.Below(count + 1);
  }

 private:
  Random& random_;
  const int64_t sector_;
  const double keeps_all_;
  const bool is_extreme_;
};

std::string CrashBytes(const Node& file, Survival& survival) {
  std::string bytes = file.flushed_bytes;
  // A truncation comes after everything before it: writes do not move across one.
  const auto is_truncation = [](const Node::Change& change) { return change.is_truncation; };
  const size_t num_truncations = std::count_if(file.changes.begin(), file.changes.end(), is_truncation);
  size_t truncations_left = survival.Keep(num_truncations);
  auto begin = file.changes.begin();
  while (truncations_left > 0) {
    truncations_left -= begin->is_truncation ? 1 : 0;
    Apply(*begin++, bytes);
  }
  const auto end = std::find_if(begin, file.changes.end(), is_truncation);

  const int64_t sector = survival.sector();
  std::map<int64_t, std::vector<const Node::Change*>> by_sector;
  int64_t longest = static_cast<int64_t>(bytes.size());
  for (auto change = begin; change != end; ++change) {
    const int64_t last = change->offset + static_cast<int64_t>(change->bytes.size()) - 1;
    for (int64_t at = change->offset / sector; at <= last / sector; ++at) by_sector[at].push_back(&*change);
    longest = std::max(longest, last + 1);
  }
  for (const auto& [at, changes] : by_sector) {
    const size_t kept = survival.Keep(changes.size());
    for (size_t i = 0; i < kept; ++i) {
      const Node::Change& change = *changes[i];
      const int64_t from = std::max(change.offset, at * sector);
      const int64_t to = std::min(change.offset + static_cast<int64_t>(change.bytes.size()), (at + 1) * sector);
      Apply({.offset = from, .bytes = change.bytes.substr(from - change.offset, to - from)}, bytes);
    }
  }
  // A file may have got its length, and zeros, before its bytes.
  if (static_cast<int64_t>(bytes.size()) < longest && survival.Keep(1) == 1) bytes.resize(longest, '\0');
  return bytes;
}

// What a crash leaves of a node; with no `survival` all that is there.
NodePtr Left(const NodePtr& node, Survival* survival, std::map<const Node*, NodePtr>& done) {
  if (auto found = done.find(node.get()); found != done.end()) return found->second;
  auto left = std::make_shared<Node>();
  done[node.get()] = left;
  left->is_directory = node->is_directory;
  if (!node->is_directory) {
    const bool is_flushed = node->changes.empty() && !node->has_lost_changes;
    left->bytes = survival != nullptr && !is_flushed ? CrashBytes(*node, *survival) : node->bytes;
    return left;
  }
  Node::Entries entries = node->entries;
  if (survival != nullptr && !node->entry_changes.empty()) {
    entries = node->flushed_entries;
    std::map<std::string, std::vector<NodePtr>> by_name;
    for (const auto& [name, target] : node->entry_changes) by_name[name].push_back(target);
    for (const auto& [name, targets] : by_name) {
      const size_t kept = survival->Keep(targets.size());
      if (kept > 0) entries[name] = targets[kept - 1];
    }
  }
  for (const auto& [name, target] : entries) {
    if (target != nullptr) left->entries[name] = Left(target, survival, done);
  }
  left->flushed_entries = left->entries;
  return left;
}

void Collect(const std::string& path, const NodePtr& node, std::map<std::string, NodePtr>& files) {
  if (!node->is_directory) files[path] = node;
  for (const auto& [name, entry] : node->entries) Collect(path + "/" + name, entry, files);
}

}  // namespace

const char* Name(DiskOperation operation) {
  constexpr const char* kNames[] = {"open",
                                    "create",
                                    "read",
                                    "write",
                                    "truncate",
                                    "sync",
                                    "rename",
                                    "link",
                                    "unlink",
                                    "create directory",
                                    "remove directory",
                                    "sync directory",
                                    "list"};
  return kNames[static_cast<int>(operation)];
}

SimulatedDisk::SimulatedDisk() : root_(std::make_shared<Node>()) { root_->is_directory = true; }

int SimulatedDisk::Fault(DiskOperation operation, std::string_view path, double* written) {
  if (!fault_) return 0;
  const DiskFault fault = fault_({.operation = operation, .path = path});
  if (written != nullptr) *written = fault.written;
  return fault.error;
}

void SimulatedDisk::Changed() const {
  if (on_change_) on_change_();
}

NodePtr SimulatedDisk::Find(const std::string& path) const {
  NodePtr node = root_;
  for (const std::string& part : Split(path)) {
    auto entry = node->entries.find(part);
    if (entry == node->entries.end()) return nullptr;
    node = entry->second;
  }
  return node;
}

NodePtr SimulatedDisk::FindParent(const std::string& path, std::string& name) const {
  const size_t slash = path.rfind('/');
  name = path.substr(slash + 1);
  NodePtr parent = Find(path.substr(0, slash));
  return parent != nullptr && parent->is_directory ? parent : nullptr;
}

void SimulatedDisk::SetEntry(Node& directory, const std::string& name, NodePtr node) {
  if (directory.entry_changes.empty()) directory.flushed_entries = directory.entries;
  directory.entry_changes.emplace_back(name, node);
  if (node == nullptr) {
    directory.entries.erase(name);
  } else {
    directory.entries[name] = std::move(node);
  }
}

int SimulatedDisk::Open(const std::string& path, bool create, NodePtr& node) {
  node = Find(path);
  const bool creates = node == nullptr && create;
  if (int error = Fault(creates ? DiskOperation::kCreate : DiskOperation::kOpen, path)) return error;
  if (node != nullptr) return node->is_directory ? EISDIR : 0;
  if (!create) return ENOENT;
  std::string name;
  const NodePtr parent = FindParent(path, name);
  if (parent == nullptr) return ENOENT;
  node = std::make_shared<Node>();
  SetEntry(*parent, name, node);
  Changed();
  return 0;
}

int SimulatedDisk::Read(const Node& node, const std::string& path, int64_t offset, int64_t length, std::string& bytes) {
  if (int error = Fault(DiskOperation::kRead, path)) return error;
  const auto size = static_cast<int64_t>(node.bytes.size());
  bytes = offset >= size ? std::string() : node.bytes.substr(offset, std::min(length, size - offset));
  return 0;
}

int SimulatedDisk::Write(Node& node, const std::string& path, int64_t offset, std::string_view bytes) {
  double written = 0;
  const int error = Fault(DiskOperation::kWrite, path, &written);
  if (error != 0) bytes = bytes.substr(0, static_cast<size_t>(written * static_cast<double>(bytes.size())));
  if (bytes.empty()) return error;
  KeepFlushedBytes(node);
  node.changes.push_back({.offset = offset, .bytes = std::string(bytes)});
  Apply(node.changes.back(), node.bytes);
  Changed();
  return error;
}

int SimulatedDisk::Truncate(Node& node, const std::string& path, int64_t size) {
  if (int error = Fault(DiskOperation::kTruncate, path)) return error;
  if (static_cast<int64_t>(node.bytes.size()) == size) return 0;
  KeepFlushedBytes(node);
  node.changes.push_back({.offset = size, .is_truncation = true});
  Apply(node.changes.back(), node.bytes);
  Changed();
  return 0;
}

int SimulatedDisk::Sync(Node& node, const std::string& path) {
  const int error = Fault(DiskOperation::kSync, path);
  if (error == 0) Changed();
  if (error != 0 && !node.changes.empty()) node.has_lost_changes = true;
  if (error == 0) {
    for (const Node::Change& change : node.changes) Apply(change, node.flushed_bytes);
  }
  node.changes.clear();
  return error;
}

int SimulatedDisk::Rename(const std::string& from, const std::string& to) {
  if (int error = Fault(DiskOperation::kRename, from)) return error;
  std::string from_name;
  std::string to_name;
  const NodePtr from_parent = FindParent(from, from_name);
  const NodePtr to_parent = FindParent(to, to_name);
  const NodePtr node = Find(from);
  if (node == nullptr || to_parent == nullptr) return ENOENT;
  SetEntry(*to_parent, to_name, node);
  SetEntry(*from_parent, from_name, nullptr);
  Changed();
  return 0;
}

int SimulatedDisk::Link(const std::string& path, const std::string& name) {
  if (int error = Fault(DiskOperation::kLink, path)) return error;
  std::string last;
  const NodePtr parent = FindParent(name, last);
  const NodePtr node = Find(path);
  if (node == nullptr || parent == nullptr) return ENOENT;
  if (parent->entries.contains(last)) return EEXIST;
  SetEntry(*parent, last, node);
  Changed();
  return 0;
}

int SimulatedDisk::Unlink(const std::string& path) {
  if (int error = Fault(DiskOperation::kUnlink, path)) return error;
  std::string name;
  const NodePtr parent = FindParent(path, name);
  if (parent == nullptr || !parent->entries.contains(name)) return ENOENT;
  SetEntry(*parent, name, nullptr);
  Changed();
  return 0;
}

int SimulatedDisk::CreateDirectory(const std::string& path) {
  if (int error = Fault(DiskOperation::kCreateDirectory, path)) return error;
  std::string name;
  const NodePtr parent = FindParent(path, name);
  if (parent == nullptr) return ENOENT;
  if (parent->entries.contains(name)) return EEXIST;
  auto node = std::make_shared<Node>();
  node->is_directory = true;
  SetEntry(*parent, name, std::move(node));
  Changed();
  return 0;
}

int SimulatedDisk::RemoveDirectory(const std::string& path) {
  if (int error = Fault(DiskOperation::kRemoveDirectory, path)) return error;
  std::string name;
  const NodePtr parent = FindParent(path, name);
  const NodePtr node = Find(path);
  if (parent == nullptr || node == nullptr) return ENOENT;
  if (!node->is_directory) return ENOTDIR;
  if (!node->entries.empty()) return ENOTEMPTY;
  SetEntry(*parent, name, nullptr);
  Changed();
  return 0;
}

int SimulatedDisk::SyncDirectory(const std::string& path) {
  if (int error = Fault(DiskOperation::kSyncDirectory, path)) return error;
  const NodePtr node = Find(path);
  if (node == nullptr || !node->is_directory) return ENOENT;
  Changed();
  node->entry_changes.clear();
  return 0;
}

int SimulatedDisk::List(const std::string& path, std::vector<std::string>& names) {
  if (int error = Fault(DiskOperation::kList, path)) return error;
  const NodePtr node = Find(path);
  if (node == nullptr || !node->is_directory) return ENOENT;
  for (const auto& [name, entry] : node->entries) names.push_back(name);
  return 0;
}

std::unique_ptr<SimulatedDisk> SimulatedDisk::Crash(Random& random) const {
  Survival survival(random);
  std::map<const Node*, NodePtr> done;
  auto disk = std::make_unique<SimulatedDisk>();
  disk->root_ = Left(root_, &survival, done);
  return disk;
}

std::unique_ptr<SimulatedDisk> SimulatedDisk::Copy() const {
  std::map<const Node*, NodePtr> done;
  auto disk = std::make_unique<SimulatedDisk>();
  disk->root_ = Left(root_, nullptr, done);
  return disk;
}

std::map<std::string, NodePtr> SimulatedDisk::Files() const {
  std::map<std::string, NodePtr> files;
  Collect("", root_, files);
  return files;
}

}  // namespace sheaf::crash
