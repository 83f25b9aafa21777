// RoutingKit's customizable contraction hierarchies behind plain C functions, for bench/routingkit.py.
#include <routingkit/constants.h>
#include <routingkit/customizable_contraction_hierarchy.h>

#include <algorithm>
#include <vector>

namespace {

using namespace RoutingKit;

struct Net {
  CustomizableContractionHierarchy cch;
  std::vector<unsigned> weight;
  CustomizableContractionHierarchyMetric metric;
  CustomizableContractionHierarchyParallelization parallel;
  CustomizableContractionHierarchyQuery query;
};

std::vector<unsigned> copy(const unsigned* x, unsigned count) { return {x, x + count}; }

}  // namespace

extern "C" {

void* prepare(unsigned n, unsigned m, const unsigned* order, const unsigned* tail,
              const unsigned* head) {
  auto* net = new Net;
  net->cch = CustomizableContractionHierarchy(copy(order, n), copy(tail, m), copy(head, m));
  net->parallel.reset(net->cch);
  return net;
}

void customize(void* handle, unsigned m, const unsigned* weight, unsigned threads) {
  auto& net = *static_cast<Net*>(handle);
  net.weight = copy(weight, m);
  net.metric.reset(net.cch, net.weight);
  net.parallel.customize(net.metric, threads);
  net.query.reset(net.metric);
}

unsigned distance(void* handle, unsigned source, unsigned target) {
  auto& query = static_cast<Net*>(handle)->query;
  return query.reset().add_source(source).add_target(target).run().get_distance();
}

// The number of nodes on a best path, which are stored in `nodes`.
unsigned path(void* handle, unsigned source, unsigned target, unsigned* nodes) {
  auto& query = static_cast<Net*>(handle)->query;
  auto found = query.reset().add_source(source).add_target(target).run().get_node_path();
  std::copy(found.begin(), found.end(), nodes);
  return found.size();
}

void table(void* handle, unsigned sources, const unsigned* source, unsigned targets,
           const unsigned* target, unsigned* out) {
  auto& query = static_cast<Net*>(handle)->query;
  query.reset().pin_targets(copy(target, targets));
  for (unsigned i = 0; i < sources; ++i, out += targets)
    query.reset_source().add_source(source[i]).run_to_pinned_targets().get_distances_to_targets(
        out);
}

void release(void* handle) { delete static_cast<Net*>(handle); }
}
