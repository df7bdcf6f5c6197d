"""Models that have a head, in many shapes: each function gives a `Builder`, and what is
to be found. Weights are the same in most, so that what is found can be compared.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx_builder import BIAS, CLASSES, FEATURES, INPUTS, STEPS, WEIGHT, Builder, numbers

ACCEPTED = {}  # name: (maker, relation)


def accepted(relation):
    def kept(maker):
        ACCEPTED[maker.__name__] = (maker, relation)
        return maker

    return kept


def softmaxed(build, logits, name="y"):
    build.output(build.node("Softmax", logits, axis=-1), name)
    return build


# How weights are stored and multiplied


@accepted("softmax")
def gemm(build):
    return softmaxed(
        build, build.node("Gemm", build.features(), build.array(WEIGHT), build.array(BIAS))
    )


@accepted("softmax")
def gemm_turned_and_scaled(build):
    weight, bias = build.array(2 * WEIGHT.T.copy()), build.array(4 * BIAS[None])
    return softmaxed(
        build,
        build.node("Gemm", build.features(), weight, bias, transB=1, alpha=0.5, beta=0.25),
    )


@accepted("softmax")
def bias_first(build):
    product = build.node("MatMul", build.features(), build.array(WEIGHT))
    return softmaxed(build, build.node("Add", build.array(BIAS), product))


@accepted("softmax")
def constant_nodes(build):
    product = build.node("MatMul", build.features(), build.constant(WEIGHT))
    return softmaxed(build, build.node("Add", product, build.constant(BIAS)))


@accepted("softmax")
def folded_weights(build):
    turned = build.node("Transpose", build.array(WEIGHT.T.astype(np.float64)), perm=[1, 0])
    weight = build.node("Cast", turned, to=TensorProto.FLOAT)
    weight = build.node("Identity", weight)
    shape = build.array(np.array([FEATURES, CLASSES]))
    weight = build.node("Reshape", weight, shape)
    product = build.node("MatMul", build.features(), weight)
    return softmaxed(build, build.node("Add", product, build.array(BIAS)))


@accepted("softmax")
def normalised_weights(build):
    direction, length = build.array(3 * WEIGHT), np.sqrt((WEIGHT**2).sum(0, keepdims=True))
    norm = build.node("ReduceL2", direction, axes=[0], keepdims=1)
    weight = build.node("Mul", build.node("Div", direction, norm), build.array(length))
    product = build.node("MatMul", build.features(), weight)
    return softmaxed(build, build.node("Add", product, build.array(BIAS)))


@accepted("softmax")
def shared_weights(build):
    """The head's weights are an embedding too, as in language models."""
    features = build.features()
    weight = build.array(WEIGHT)
    turned = build.node("Transpose", weight, perm=[1, 0])
    mixed = build.node("MatMul", build.node("MatMul", features, weight), turned)
    features = build.node("Tanh", mixed)
    return softmaxed(
        build, build.node("Add", build.node("MatMul", features, weight), build.array(BIAS))
    )


@accepted("softmax")
def weights_from_the_left(build):
    turned = build.node("Transpose", build.features(), perm=[1, 0])
    product = build.node("MatMul", build.array(WEIGHT.T.copy()), turned)
    logits = build.node("Add", product, build.array(BIAS[:, None]))
    return softmaxed(build, build.node("Transpose", logits, perm=[1, 0]))


@accepted("softmax")
def gemm_of_turned_features(build):
    turned = build.node("Transpose", build.features(), perm=[1, 0])
    return softmaxed(
        build, build.node("Gemm", turned, build.array(WEIGHT), build.array(BIAS), transA=1)
    )


@accepted("softmax")
def einsum(build):
    weight = build.array(WEIGHT.T.copy())
    product = build.node("Einsum", build.features(), weight, equation="bd,kd->bk")
    return softmaxed(build, build.node("Add", product, build.array(BIAS)))


@accepted("softmax")
def einsum_without_an_arrow(build):
    product = build.node("Einsum", build.features(), build.array(WEIGHT), equation="bd,dk")
    return softmaxed(build, build.node("Add", product, build.array(BIAS)))


@accepted("softmax")
def einsum_over_two_dimensions(build):
    """As a dense layer over heads and their features, weights in another order."""
    features = build.node("Reshape", build.features(), build.array(np.array([-1, 3, 4])))
    weight = build.array(WEIGHT.reshape(3, 4, CLASSES).transpose(1, 2, 0).copy())
    product = build.node("Einsum", features, weight, equation="bhd,dkh->bk")
    return softmaxed(build, build.node("Add", product, build.array(BIAS)))


@accepted("softmax")
def sparse_weights(build):
    weight = build.sparse_array(WEIGHT * (np.abs(WEIGHT) > 0.3), "W")
    product = build.node("MatMul", build.features(), weight)
    return softmaxed(build, build.node("Add", product, build.array(BIAS)))


@accepted("softmax")
def convolution_padded_to_the_same_size(build):
    """Of one pixel, so that nothing is padded."""
    features = build.node("Reshape", build.features(), build.array(np.array([-1, FEATURES, 1, 1])))
    kernel = build.array(WEIGHT.T.reshape(CLASSES, FEATURES, 1, 1).copy())
    logits = build.node("Conv", features, kernel, build.array(BIAS), auto_pad="SAME_UPPER")
    return softmaxed(build, build.node("Flatten", logits))


@accepted("softmax")
def convolution_of_one_pixel(build):
    features = build.node("Reshape", build.features(), build.array(np.array([-1, FEATURES, 1, 1])))
    kernel = build.array(WEIGHT.T.reshape(CLASSES, FEATURES, 1, 1).copy())
    logits = build.node("Conv", features, kernel, build.array(BIAS))
    return softmaxed(build, build.node("Flatten", logits))


@accepted("softmax")
def convolution_of_all_pixels(build):
    features = build.node(
        "Reshape", build.features(), build.array(np.array([-1, FEATURES // 4, 2, 2]))
    )
    kernel = build.array(WEIGHT.T.reshape(CLASSES, FEATURES // 4, 2, 2).copy())
    logits = build.node("Conv", features, kernel, build.array(BIAS))
    return softmaxed(build, build.node("Flatten", logits))


@accepted("softmax")
def fused_product(build):
    product = build.node(
        "FusedMatMul",
        build.features(),
        build.array(WEIGHT.T / 2),
        domain="com.microsoft",
        transB=1,
        alpha=2.0,
    )
    return softmaxed(build, build.node("Add", product, build.array(BIAS)))


# What stands behind the head


@accepted("softmax")
def several_biases_in_one_sum(build):
    product = build.node("MatMul", build.features(), build.array(WEIGHT))
    return softmaxed(
        build, build.node("Sum", build.array(BIAS), product, build.array(2 * BIAS[None]))
    )


@accepted("softmax")
def probabilities_in_one_line(build):
    probabilities = build.node("Softmax", build.logits(build.features()), axis=-1)
    build.output(build.node("Reshape", probabilities, build.array(np.array([-1]))))
    return build


@accepted("logits")
def logits_alone(build):
    build.output(build.logits(build.features()))
    return build


@accepted("softmax")
def temperature(build):
    logits = build.logits(build.features())
    return softmaxed(build, build.node("Div", logits, build.array(np.float32(1.7))))


@accepted("softmax")
def scales_by_class(build):
    logits = build.logits(build.features())
    scaled = build.node("Mul", logits, build.array(np.linspace(0.5, 2, CLASSES, dtype=np.float32)))
    return softmaxed(build, build.node("Sub", scaled, build.array(BIAS[None])))


@accepted("softmax")
def batch_normalisation(build):
    logits = build.logits(build.features())
    numbers_by_class = [
        build.array(np.linspace(0.5, 1.5, CLASSES, dtype=np.float32) + place) for place in range(4)
    ]
    return softmaxed(build, build.node("BatchNormalization", logits, *numbers_by_class))


@accepted("softmax")
def changes_of_shape_and_type(build):
    logits = build.node("Identity", build.logits(build.features()))
    logits = build.node("Dropout", logits)
    logits = build.node("Unsqueeze", logits, build.array(np.array([1])))
    logits = build.node("Cast", logits, to=TensorProto.DOUBLE)
    logits = build.node("Squeeze", logits, build.array(np.array([1])))
    return softmaxed(build, build.node("Cast", logits, to=TensorProto.FLOAT))


@accepted("softmax")
def classes_in_another_order(build):
    """More of them than features, so that no features could be chosen so."""
    weight = build.array(numbers(FEATURES, 20, seed=5, scale=0.7))
    logits = build.node("MatMul", build.features(), weight)
    order = build.array(np.arange(20)[::-1].copy())
    chosen = build.node("Gather", logits, order, axis=1)
    kept = [build.array(np.array([number])) for number in (0, CLASSES, 1)]
    return softmaxed(build, build.node("Slice", chosen, *kept))


@accepted("softmax")
def some_classes_of_one_step(build):
    """As a language model that is asked for yes or no: places of tokens are no places of
    features.
    """
    weight = build.array(numbers(FEATURES, 40, seed=11))
    logits = build.node("MatMul", build.features(steps=STEPS), weight)
    last = build.node("Gather", logits, build.array(np.array(-1)), axis=1)
    return softmaxed(build, build.node("Gather", last, build.array(np.array([33, 37])), axis=-1))


@accepted("logits")
def embedding_that_no_layer_makes(build):
    """An output of what the head takes is no other opinion of what the classes are."""
    features = build.node("Tanh", build.features())
    build.output(features, "embedding")
    build.output(build.logits(features), "y")
    return build


@accepted("softmax")
def product_of_integers(build):
    counts = build.input("x", np.random.default_rng(3).integers(0, 5, (9, INPUTS), np.int32))
    weight = build.array(np.random.default_rng(4).integers(-2, 3, (INPUTS, CLASSES), np.int32))
    product = build.node("MatMul", counts, weight)
    return softmaxed(build, build.node("Cast", product, to=TensorProto.FLOAT))


@accepted("softmax")
def classes_that_only_pad_the_layer(build):
    weight = build.array(np.pad(WEIGHT, ((0, 0), (0, 3))))
    padded = build.node("Gemm", build.features(), weight, build.array(np.pad(BIAS, (0, 3))))
    first, last = (build.array(np.array(ends)) for ends in ([0, 0], [2**31 - 1, CLASSES]))
    cut = build.node("Slice", padded, first, last, build.array(np.array([0, 1])))
    scaled = build.node("Mul", cut, build.array(np.linspace(0.5, 2, CLASSES, dtype=np.float32)))
    return softmaxed(build, scaled)


@accepted("softmax")
def classes_beside_other_numbers(build):
    """One layer gives classes, and four numbers of another kind that nobody asks for."""
    weight = build.array(np.concatenate([numbers(FEATURES, 4, seed=6), WEIGHT], 1))
    both = build.node("MatMul", build.features(), weight)
    sizes = build.array(np.array([4, CLASSES]))
    _, logits = build.node("Split", both, sizes, outputs=2, axis=-1)
    return softmaxed(build, logits)


@accepted("softmax")
def least_is_best(build):
    return softmaxed(build, build.node("Neg", build.logits(build.features())))


@accepted("softmax")
def softmax_in_parts(build):
    logits = build.logits(build.features())
    shifted = build.node("Sub", logits, build.node("ReduceMax", logits, axes=[-1], keepdims=1))
    parts = build.node("Exp", shifted)
    total = build.node("ReduceSum", parts, build.array(np.array([-1])), keepdims=1)
    build.output(build.node("Div", parts, total))
    return build


@accepted("softmax")
def softmax_in_parts_with_a_temperature_inside(build):
    logits = build.logits(build.features())
    largest = build.node("ReduceMax", logits, axes=[-1], keepdims=1)
    largest = build.node("Max", largest, build.array(np.float32(-np.inf)))
    shifted = build.node("Sub", logits, largest)
    parts = build.node("Exp", build.node("Mul", shifted, build.array(np.float32(0.4))))
    total = build.node("ReduceSum", parts, build.array(np.array([-1])), keepdims=1)
    build.output(build.node("Mul", parts, build.node("Reciprocal", total)))
    return build


@accepted("log-softmax")
def log_softmax(build):
    build.output(build.node("LogSoftmax", build.logits(build.features()), axis=-1))
    return build


@accepted("log-softmax")
def log_softmax_in_parts(build):
    logits = build.logits(build.features())
    build.output(
        build.node("Sub", logits, build.node("ReduceLogSumExp", logits, axes=[-1], keepdims=1))
    )
    return build


@accepted("softmax")
def probabilities_kept_from_zero(build):
    probabilities = build.node("Softmax", build.logits(build.features()), axis=-1)
    limits = build.array(np.float32(1e-7)), build.array(np.float32(1 - 1e-7))
    build.output(build.node("Clip", probabilities, *limits))
    return build


@accepted("label")
def label_alone(build):
    logits = build.logits(build.features())
    build.output(build.node("ArgMax", logits, axis=-1, keepdims=0), kind=TensorProto.INT64)
    return build


@accepted("top classes")
def two_best_classes(build):
    probabilities = build.node("Softmax", build.logits(build.features()), axis=-1)
    best, _ = build.node("TopK", probabilities, build.array(np.array([2])), outputs=2)
    build.output(best)
    return build


@accepted("softmax")
def label_and_probabilities(build):
    logits = build.logits(build.features())
    build.output(build.node("ArgMax", logits, axis=-1, keepdims=0), "label", kind=TensorProto.INT64)
    return softmaxed(build, logits, "p")


@accepted("softmax")
def embedding_too(build):
    """The features, made by a linear layer, are an output of their own."""
    features = build.node(
        "MatMul", build.features(), build.array(numbers(FEATURES, FEATURES, seed=9))
    )
    build.output(features, "embedding")
    return softmaxed(build, build.logits(features))


# One logit


def one_logit(build):
    product = build.node("MatMul", build.features(), build.array(WEIGHT[:, :1].copy()))
    return build.node("Add", product, build.array(BIAS[:1]))


@accepted("sigmoid")
def binary(build):
    build.output(build.node("Sigmoid", one_logit(build)))
    return build


@accepted("sigmoid")
def binary_without_its_column(build):
    squeezed = build.node("Squeeze", one_logit(build), build.array(np.array([-1])))
    build.output(build.node("Sigmoid", squeezed))
    return build


@accepted("sigmoid")
def binary_by_a_vector(build):
    product = build.node("MatMul", build.features(), build.array(WEIGHT[:, 0].copy()))
    build.output(build.node("Sigmoid", build.node("Add", product, build.array(BIAS[:1]))))
    return build


@accepted("sigmoid")
def binary_with_two_columns(build):
    second = build.node("Sigmoid", one_logit(build))
    first = build.node("Sub", build.array(np.float32(1)), second)
    build.output(build.node("Concat", first, second, axis=-1))
    return build


@accepted("sigmoid")
def binary_with_a_logit_of_zero(build):
    logit = one_logit(build)
    nothing = build.node("Mul", logit, build.array(np.float32(0)))
    return softmaxed(build, build.node("Concat", nothing, logit, axis=-1))


@accepted("log-softmax")
def binary_with_a_logit_of_zero_as_logarithms(build):
    logit = one_logit(build)
    nothing = build.node("Mul", logit, build.array(np.float32(0)))
    both = build.node("Concat", nothing, logit, axis=-1)
    build.output(build.node("LogSoftmax", both, axis=-1))
    return build


@accepted("sigmoid")
def binary_by_a_hyperbolic_tangent(build):
    half = build.array(np.float32(0.5))
    bent = build.node("Tanh", build.node("Mul", one_logit(build), half))
    build.output(build.node("Add", build.node("Mul", bent, half), half))
    return build


@accepted("label")
def binary_label(build):
    positive = build.node("Greater", one_logit(build), build.array(np.float32(0)))
    build.output(build.node("Cast", positive, to=TensorProto.INT64), kind=TensorProto.INT64)
    return build


# Time steps


@accepted("softmax")
def time_steps(build):
    return softmaxed(build, build.logits(build.features(steps=STEPS)))


@accepted("softmax")
def time_steps_as_rows(build):
    features = build.features(steps=STEPS)
    rows = build.node("Reshape", features, build.array(np.array([-1, FEATURES])))
    shape = build.array(np.array([-1, STEPS, CLASSES]))
    return softmaxed(build, build.node("Reshape", build.logits(rows), shape))


@accepted("softmax")
def time_steps_before_examples_inside(build):
    """As recurrent layers have them."""
    first = build.node("Transpose", build.features(steps=STEPS), perm=[1, 0, 2])
    logits = build.node("Transpose", build.logits(first), perm=[1, 0, 2])
    return softmaxed(build, logits)


@accepted("softmax")
def time_steps_last(build):
    logits = build.logits(build.features(steps=STEPS))
    turned = build.node("Transpose", logits, perm=[0, 2, 1])
    build.output(build.node("Softmax", turned, axis=1))
    return build


@accepted("sigmoid")
def time_steps_of_one_logit(build):
    product = build.node("MatMul", build.features(steps=STEPS), build.array(WEIGHT[:, :1].copy()))
    build.output(build.node("Sigmoid", build.node("Squeeze", product, build.array(np.array([-1])))))
    return build


@accepted("softmax")
def pixels(build):
    features = build.node("Transpose", build.features(steps=STEPS), perm=[0, 2, 1])
    kernel = build.array(WEIGHT.T.reshape(CLASSES, FEATURES, 1).copy())
    logits = build.node("Conv", features, kernel, build.array(BIAS))
    build.output(build.node("Softmax", logits, axis=1))
    return build


@accepted("softmax")
def mean_over_time_steps(build):
    logits = build.logits(build.features(steps=STEPS))
    return softmaxed(build, build.node("ReduceMean", logits, axes=[1], keepdims=0))


@accepted("softmax")
def last_time_step(build):
    logits = build.logits(build.features(steps=STEPS))
    return softmaxed(build, build.node("Gather", logits, build.array(np.int64(-1)), axis=1))


@accepted("softmax")
def mean_over_pixels(build):
    features = build.node("Transpose", build.features(steps=STEPS), perm=[0, 2, 1])
    kernel = build.array(WEIGHT.T.reshape(CLASSES, FEATURES, 1).copy())
    logits = build.node("Conv", features, kernel, build.array(BIAS))
    pooled = build.node("GlobalAveragePool", logits)
    return softmaxed(build, build.node("Flatten", pooled))


@accepted("softmax")
def mean_over_pixels_by_a_pool_of_their_size(build):
    features = build.node("Transpose", build.features(steps=STEPS), perm=[0, 2, 1])
    kernel = build.array(WEIGHT.T.reshape(CLASSES, FEATURES, 1).copy())
    logits = build.node("Conv", features, kernel, build.array(BIAS))
    pooled = build.node("AveragePool", logits, kernel_shape=[STEPS])
    return softmaxed(build, build.node("Reshape", pooled, build.array(np.array([-1, CLASSES]))))


# Graphs as a whole


def branch(build, kind, name):
    return helper.make_graph(
        [helper.make_node(kind, ["hidden"], [name])],
        name,
        [],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
    )


@accepted("softmax")
def condition_before_the_head(build):
    hidden = build.features()
    build.nodes.append(helper.make_node("Identity", [hidden], ["hidden"]))
    total = build.node("ReduceMax", "hidden", keepdims=0)
    chosen = build.node("Greater", total, build.array(np.float32(-1)))
    features = build.node(
        "If",
        chosen,
        then_branch=branch(build, "Tanh", "then"),
        else_branch=branch(build, "Neg", "otherwise"),
    )
    return softmaxed(build, build.logits(features))


@accepted("softmax")
def functions_before_and_behind_the_head(build):
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("Mul", ["t", "t"], ["y"]),
    ]
    opsets = [helper.make_opsetid("", build.opset)]
    build.functions.append(helper.make_function("own", "Squash", ["x"], ["y"], nodes, opsets))
    last = [helper.make_node("Softmax", ["z"], ["p"], axis=-1)]
    build.functions.append(helper.make_function("own", "Shares", ["z"], ["p"], last, opsets))
    features = build.node("Squash", build.features(), domain="own")
    build.output(build.node("Shares", build.logits(features), domain="own"), kind=TensorProto.FLOAT)
    return build


@accepted("softmax")
def several_inputs(build):
    features = build.features()
    tokens = build.input("tokens", np.arange(9 * 4, dtype=np.int64).reshape(9, 4) % 6)
    table = build.array(numbers(6, FEATURES, seed=11))
    embedded = build.node(
        "ReduceSum", build.node("Gather", table, tokens), build.array(np.array([1])), keepdims=0
    )
    return softmaxed(build, build.logits(build.node("Add", features, embedded)))


@accepted("softmax")
def names_like_those_to_be_added(build):
    features = build.features()
    build.nodes.append(helper.make_node("Identity", [features], ["lb_probabilities"]))
    return softmaxed(build, build.logits("lb_probabilities"), "lb_lower")


@accepted("softmax")
def weights_listed_as_inputs(build):
    """As files of the oldest formats have it."""
    softmaxed(build, build.logits(build.features()))
    build.format = 3
    build.inputs += [
        helper.make_tensor_value_info(array.name, array.data_type, list(array.dims))
        for array in build.arrays
    ]
    return build


@accepted("softmax")
def batches_of_four(build):
    return softmaxed(build, build.logits(build.features(examples=4, shape=[4, INPUTS])))


@accepted("softmax")
def one_example_at_a_time(build):
    return softmaxed(build, build.logits(build.features(examples=1, shape=[1, INPUTS])))


@accepted("softmax")
def open_sizes_written_as_minus_one(build):
    """As Paddle's exporter has it."""
    return softmaxed(build, build.logits(build.features(shape=[-1, INPUTS])))


@accepted("softmax")
def doubles(build):
    build.dtype = np.float64
    return softmaxed(build, build.logits(build.features()))


@accepted("softmax")
def halves(build):
    build.dtype = np.float16
    return softmaxed(build, build.logits(build.features()))


@accepted("softmax")
def halves_cut_at_their_largest_number(build):
    """As exporters keep halves from infinity; it bounds nothing."""
    build.dtype = np.float16
    ends = [build.array(np.float16(sign * 65504)) for sign in (-1, 1)]
    return softmaxed(build, build.node("Clip", build.logits(build.features()), *ends))


@accepted("softmax")
def halves_put_together(build):
    """ONNX Runtime computes these as float32, and rounds the features only for those who
    read them.
    """
    build.dtype = np.float16
    x = build.features()
    kernel = build.array(numbers(FEATURES, FEATURES - 1, seed=5, dtype=np.float16))
    hidden = build.node("Tanh", build.node("MatMul", x, kernel))
    largest = build.node("ReduceMax", x, axes=[1], keepdims=1)
    return softmaxed(build, build.logits(build.node("Concat", hidden, largest, axis=1)))


# Eight bits


def integers(value):
    scale = np.float32(np.abs(value).max() / 127)
    return np.clip(np.round(value / scale), -127, 127).astype(np.int8), scale


@accepted("softmax")
def eight_bit_weights(build):
    quantised, scale = integers(WEIGHT)
    weight = build.node("DequantizeLinear", build.array(quantised), build.array(scale))
    return softmaxed(build, build.node("Gemm", build.features(), weight, build.array(BIAS)))


@accepted("softmax")
def eight_bits_all_through(build):
    def rounded(tensor, scale):
        numbers_of = build.array(np.float32(scale)), build.array(np.uint8(128))
        return build.node(
            "DequantizeLinear", build.node("QuantizeLinear", tensor, *numbers_of), *numbers_of
        )

    quantised, scale = integers(WEIGHT)
    weight = build.node("DequantizeLinear", build.array(quantised), build.array(scale))
    logits = build.node("Gemm", rounded(build.features(), 0.08), weight, build.array(BIAS))
    return softmaxed(build, rounded(logits, 0.15))


@accepted("softmax")
def eight_bits_to_the_very_end(build):
    """As quantisers write it, who round probabilities too."""

    def rounded(tensor, scale, zero):
        numbers_of = build.array(np.float32(scale)), build.array(np.int8(zero))
        made = build.node("QuantizeLinear", tensor, *numbers_of)
        return build.node("DequantizeLinear", made, *numbers_of)

    quantised, scale = integers(WEIGHT)
    of_weight = build.array(scale), build.array(np.int8(0))
    weight = build.node("DequantizeLinear", build.array(quantised), *of_weight)
    features = rounded(build.features(), 0.08, 0)
    logits = rounded(build.node("Gemm", features, weight), 0.15, 0)
    build.output(rounded(build.node("Softmax", logits, axis=-1), 1 / 255, -128))
    return build


@accepted("softmax")
def integers_made_as_they_come(build):
    quantised, scale = integers(WEIGHT)
    made, of_features, zero = build.node("DynamicQuantizeLinear", build.features(), outputs=3)
    product = build.node(
        "MatMulInteger", made, build.array(quantised), zero, build.array(np.int8(0))
    )
    product = build.node("Cast", product, to=TensorProto.FLOAT)
    both = build.node("Mul", of_features, build.array(scale))
    logits = build.node("Add", build.node("Mul", product, both), build.array(BIAS))
    return softmaxed(build, logits)


@accepted("softmax")
def one_node_for_integers_as_they_come(build):
    quantised, scale = integers(WEIGHT)
    logits = build.node(
        "DynamicQuantizeMatMul",
        build.features(),
        build.array(quantised),
        build.array(scale),
        build.array(np.int8(0)),
        build.array(BIAS),
        domain="com.microsoft",
    )
    return softmaxed(build, logits)


@accepted("softmax")
def integers_in_and_out(build):
    quantised, scale = integers(WEIGHT)
    zero = build.array(np.uint8(128))
    of_features, of_logits = build.array(np.float32(0.08)), build.array(np.float32(0.15))
    made = build.node("QuantizeLinear", build.features(), of_features, zero)
    product = build.node(
        "QLinearMatMul", made, of_features, zero, build.array(quantised), build.array(scale),
        build.array(np.int8(0)), of_logits, zero,
    )  # fmt: skip
    logits = build.node("DequantizeLinear", product, of_logits, zero)
    return softmaxed(build, logits)


def pooled_pixels(build):
    pixels = build.features(steps=STEPS)
    return build.node("GlobalAveragePool", build.node("Transpose", pixels, perm=[0, 2, 1]))


@accepted("softmax")
def integers_made_as_they_come_and_convolved(build):
    quantised, scale = integers(WEIGHT.T.reshape(CLASSES, FEATURES, 1))
    made, of_features, zero = build.node("DynamicQuantizeLinear", pooled_pixels(build), outputs=3)
    product = build.node("ConvInteger", made, build.array(quantised), zero, build.array(np.int8(0)))
    product = build.node("Cast", product, to=TensorProto.FLOAT)
    both = build.node("Mul", of_features, build.array(scale))
    bias = build.array(BIAS.reshape(1, CLASSES, 1))
    logits = build.node("Add", build.node("Mul", product, both), bias)
    return softmaxed(build, build.node("Flatten", logits))


@accepted("softmax")
def integers_in_and_out_of_a_convolution(build):
    quantised, _ = integers(WEIGHT.T.reshape(CLASSES, FEATURES, 1))
    scales = np.full(CLASSES, np.abs(WEIGHT).max() / 127, np.float32)
    zero, none = build.array(np.uint8(128)), build.array(np.zeros(CLASSES, np.int8))
    of_features, of_logits = build.array(np.float32(0.08)), build.array(np.float32(0.15))
    made = build.node("QuantizeLinear", pooled_pixels(build), of_features, zero)
    bias = build.array(np.round(BIAS / (0.08 * scales)).astype(np.int32))
    product = build.node(
        "QLinearConv", made, of_features, zero, build.array(quantised), build.array(scales), none,
        of_logits, zero, bias,
    )  # fmt: skip
    logits = build.node("DequantizeLinear", product, of_logits, zero)
    return softmaxed(build, build.node("Flatten", logits))


# Linear models of ai.onnx.ml


def linear_classifier(build, **attributes):
    return build.node(
        "LinearClassifier", build.features(), outputs=2, domain="ai.onnx.ml", **attributes
    )


COEFFICIENTS = WEIGHT.T.reshape(-1).tolist()


def named(build, probabilities, names):
    """A mapping from names to probabilities for each example, as scikit-learn's have."""
    build.nodes.append(
        helper.make_node(
            "ZipMap", [probabilities], ["y"], domain="ai.onnx.ml", classlabels_strings=names
        )
    )
    pairs = helper.make_map_type_proto(
        TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
    build.outputs.append(helper.make_value_info("y", helper.make_sequence_type_proto(pairs)))
    return build


@accepted("softmax")
def linear_model(build):
    _, scores = linear_classifier(
        build,
        coefficients=COEFFICIENTS,
        intercepts=BIAS.tolist(),
        classlabels_ints=list(range(CLASSES)),
        post_transform="SOFTMAX",
    )
    build.output(scores, kind=TensorProto.FLOAT)
    return build


@accepted("softmax")
def linear_model_with_named_classes(build):
    names = ["cat", "dog", "emu", "fox", "gnu"]
    label, scores = linear_classifier(
        build,
        coefficients=COEFFICIENTS,
        intercepts=BIAS.tolist(),
        classlabels_strings=names,
        post_transform="SOFTMAX",
    )
    build.output(label, "label", kind=TensorProto.STRING)
    return named(build, scores, names)


@accepted("softmax")
def linear_model_with_classes_out_of_order(build):
    """Runtimes map them in order, and the columns are as they were."""
    names = ["gnu", "cat", "fox", "dog", "emu"]
    probabilities = build.node("Softmax", build.logits(build.features()), axis=-1)
    return named(build, probabilities, names)


@accepted("logits")
def linear_model_without_softmax(build):
    _, scores = linear_classifier(
        build,
        coefficients=COEFFICIENTS,
        intercepts=BIAS.tolist(),
        classlabels_ints=list(range(CLASSES)),
        post_transform="NONE",
    )
    build.output(scores, kind=TensorProto.FLOAT)
    return build


def two_classes(build, post_transform):
    """As scikit-learn's models of two classes are written: scores −z and z."""
    one = WEIGHT[:, 0]
    return linear_classifier(
        build,
        coefficients=[*(-one).tolist(), *one.tolist()],
        intercepts=[-float(BIAS[0]), float(BIAS[0])],
        classlabels_ints=[0, 1],
        post_transform=post_transform,
    )


@accepted("sigmoid")
def linear_model_of_two_classes(build):
    build.output(two_classes(build, "LOGISTIC")[1], kind=TensorProto.FLOAT)
    return build


@accepted("logits")
def linear_model_of_two_classes_without_probabilities(build):
    build.output(two_classes(build, "NONE")[1], kind=TensorProto.FLOAT)
    return build


@accepted("label")
def linear_model_of_two_classes_that_gives_labels(build):
    build.output(two_classes(build, "LOGISTIC")[0], kind=TensorProto.INT64)
    return build


@accepted("softmax")
def linear_model_of_two_classes_by_softmax(build):
    build.output(two_classes(build, "SOFTMAX")[1], kind=TensorProto.FLOAT)
    return build


def plain(opset):
    """The most usual model, in a given opset."""
    build = Builder(opset=opset)
    return softmaxed(build, build.logits(build.features()))


def array_of(model, name):
    return next(
        numpy_helper.to_array(each) for each in model.graph.initializer if each.name == name
    )
