"""What the examples in the headers of aggregation refer to."""

AGGREGATION = """
extern v1::AggregateSpec& spec; extern v1::OutputSpec& output; extern std::span<const Operator> operators, table;
extern OutputLayout& layout; extern std::vector<OutputLayout>& layouts;
extern v1::Contribution& contribution; extern std::vector<v1::Contribution>& contributions;
extern RoundAccumulator& sum; extern CheckedValue& value; extern float weight; extern ByteSink& take;
extern CellType& type; extern CellVector& cells; extern int n; extern char* bytes; extern ParallelFor& parallel;
"""

# Of one header: what differs from its folder's.
AGGREGATION_OF = {
    "cells/cell_stream.h": "extern StateWriter& out; extern StateReader& in; extern StateOrigin origin;",
    "cells/cell_vector.h": "extern CellVector& other; extern ExactDivisorColumns& divisors; extern char* released;",
    "contribution_validator.h": "extern int64_t room;",
    "exact/exact_divisor.h": "extern CellVector& weights;",
    "fold_growth.h": "extern int64_t held;",
    "operators/row_release.h": "extern ExactDivisor& divisor; extern SlotColumns& columns; extern std::vector<uint32_t>& slots;",
    "memory/raw_vector.h": "extern size_t size;",
    "memory/row_pool.h": "extern float* values;",
    "sparse/row_index.h": "extern uint64_t num_coordinates; extern int64_t* keys; extern uint32_t* slots; "
                          "extern RowIndex::Visit visit;",
    "sparse/slot_index.h": "extern uint32_t* keys; extern uint32_t* slots;",
    "sparse/slot_runs.h": "extern SparseStore& store; extern std::vector<size_t>& sizes;",
    "sparse/sparse_block.h": "extern uint64_t range; extern uint32_t* offsets; extern uint32_t* slots; "
                             "extern WideValue* values; extern int precision;",
    "sparse/union_growth.h": "extern v1::FoldCounters& counters;",
    "sparse/sparse_store.h": "extern SparseStore& store; extern CheckedValues values; extern ParallelFor& parallel;",
    "tensor_check.h": "extern v1::SparseTensor& tensor;",
    "wire/safetensors.h": "extern NamedTensor& w; extern std::string id;",
    "wire/safetensors_header.h": "extern std::string first_8_bytes, text; extern int64_t file_bytes; "
                                 "extern SafetensorsLimits& limits;",
    "wire/safetensors_patch.h": "extern std::string base_digest, file; extern std::vector<TensorChange> changes; "
                                "extern SafetensorsHeader& header;",
    "wire/state_envelope.h": "extern uint32_t kMagic; extern std::string signature;",
    "wire/tensor.h": "extern std::string bytes;",
}

FOLDERS = {
    "aggregation": (["base/byte_sink.h", "base/parallel_for.h", "base/status_macros.h"], AGGREGATION, AGGREGATION_OF),
}
