"""Models that cannot be covered, each with words that the refusal must say."""

import numpy as np
from onnx import TensorProto, helper
from onnx_builder import BIAS, CLASSES, FEATURES, STEPS, WEIGHT, numbers
from onnx_models import COEFFICIENTS, integers, linear_classifier, softmaxed

REFUSED = {}  # name: (maker, words)


def refused(*words):
    def kept(maker):
        REFUSED[maker.__name__] = (maker, words)
        return maker

    return kept


@refused("Clip", "bounds", "Export the model without")
def clip_that_no_batch_reaches(build):
    logits = build.logits(build.features())
    limits = build.array(np.float32(-500)), build.array(np.float32(500))
    return softmaxed(build, build.node("Clip", logits, *limits))


@refused("Where", "of large logits than of small ones", "Export the model without")
def bound_by_a_condition_that_no_batch_reaches(build):
    logits = build.logits(build.features())
    most = build.array(np.float32(500))
    bounded = build.node("Where", build.node("Greater", logits, most), most, logits)
    return softmaxed(build, bounded)


@refused("Tanh, Mul, Sigmoid", "neither softmax")
def capped_logit_of_two_classes(build):
    weight = build.array(WEIGHT[:, :1].copy())
    logit = build.node("MatMul", build.features(), weight)
    most = build.array(np.float32(2000))
    capped = build.node("Mul", build.node("Tanh", build.node("Div", logit, most)), most)
    build.output(build.node("Sigmoid", capped))
    return build


@refused("negative logarithm", "logits or probabilities as its output")
def negative_logarithms(build):
    build.output(build.node("Neg", build.node("LogSoftmax", build.logits(build.features()))))
    return build


@refused("Relu, Softmax", "neither softmax")
def relu_behind_the_head(build):
    return softmaxed(build, build.node("Relu", build.logits(build.features())))


@refused("Tanh", "neither softmax")
def capped_logits(build):
    """As some language models have them: 30 · tanh(z / 30)."""
    logits = build.logits(build.features())
    small = build.node("Tanh", build.node("Div", logits, build.array(np.float32(30))))
    return softmaxed(build, build.node("Mul", small, build.array(np.float32(30))))


@refused("LeakyRelu", "neither softmax")
def leaky_relu_behind_the_head(build):
    return softmaxed(build, build.node("LeakyRelu", build.logits(build.features()), alpha=0.5))


@refused("Gemm", "one number for each class", "as MatMul and Add")
def bias_for_each_row(build):
    bias = build.array(numbers(9, CLASSES))
    return softmaxed(build, build.node("Gemm", build.features(), build.array(WEIGHT), bias))


@refused("not all finite", "-1e9")
def class_ruled_out_by_infinity(build):
    bias = build.array(np.array([0, -np.inf, 0, 0, 0], np.float32))
    return softmaxed(build, build.node("Gemm", build.features(), build.array(WEIGHT), bias))


@refused("RandomNormalLike", "draws random numbers")
def noise_on_features(build):
    features = build.features()
    noisy = build.node("Add", features, build.node("RandomNormalLike", features))
    return softmaxed(build, build.logits(noisy))


@refused("Dropout", "draws random numbers", "for inference")
def dropout_that_is_on(build):
    on = build.array(np.float32(0.5)), build.array(np.array(True))
    return softmaxed(build, build.logits(build.node("Dropout", build.features(), *on)))


@refused("sigmoid for each of 5 classes", "binary head", "with `multi_label=True`")
def several_labels_at_once(build):
    build.output(build.node("Sigmoid", build.logits(build.features())))
    return build


@refused("fed as the input 'W'", "initializer")
def weights_as_an_input(build):
    features = build.features()
    weight = build.input("W", WEIGHT, list(WEIGHT.shape))
    return softmaxed(build, build.node("MatMul", features, weight))


@refused("several heads", "'a' by MatMul", "output='a'")
def two_heads(build):
    features = build.features()
    softmaxed(build, build.node("MatMul", features, build.array(WEIGHT)), "a")
    return softmaxed(build, build.node("MatMul", features, build.array(WEIGHT[:, :3].copy())), "b")


@refused("several heads", "'a' by MatMul", "2 classes", "'b' by MatMul", "3 classes")
def two_heads_in_one_layer(build):
    both = build.node("MatMul", build.features(), build.array(WEIGHT))
    sizes = build.array(np.array([2, 3]))
    first, second = build.node("Split", both, sizes, outputs=2, axis=-1)
    softmaxed(build, first, "a")
    return softmaxed(build, second, "b")


@refused("linear layer", "several")
def sum_of_two_heads(build):
    features = build.features()
    other = build.node("Tanh", features)
    first = build.node("MatMul", features, build.array(WEIGHT))
    second = build.node("MatMul", other, build.array(WEIGHT[::-1].copy()))
    return softmaxed(build, build.node("Add", first, second))


@refused("linear layer", "several ways")
def mean_of_two_softmaxes(build):
    """An ensemble."""
    features = build.features()
    members = [
        build.node("Softmax", build.node("MatMul", features, build.array(weight)), axis=-1)
        for weight in (WEIGHT, WEIGHT[::-1].copy())
    ]
    build.output(build.node("Mean", *members))
    return build


@refused("values of 'x' reach it on ways that cross none", "shortcut")
def shortcut_around_the_head(build):
    x = build.input("x", numbers(9, CLASSES, seed=3))
    product = build.node("MatMul", x, build.array(numbers(CLASSES, CLASSES, seed=4)))
    return softmaxed(build, build.node("Add", product, x))


@refused("values of 'temperature' reach it on ways that cross none of MatMul")
def temperature_as_an_input(build):
    logits = build.logits(build.features())
    temperature = build.input("temperature", np.array(2, np.float32), [])
    return softmaxed(build, build.node("Div", logits, temperature))


@refused("subgraph of If", "control flow")
def head_inside_a_condition(build):
    x = build.features()

    def branch(name, weight):
        return helper.make_graph(
            [helper.make_node("MatMul", [x, weight], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
        )

    first, second = build.array(WEIGHT), build.array(WEIGHT[::-1].copy())
    chosen = build.node(
        "Greater", build.node("ReduceMax", x, keepdims=0), build.array(np.float32(0))
    )
    logits = build.node(
        "If", chosen, then_branch=branch("then", first), else_branch=branch("other", second)
    )
    return softmaxed(build, logits)


@refused("functions", "inline_local_functions")
def head_inside_a_function(build):
    x = build.features()
    nodes = [helper.make_node("MatMul", ["f", "w"], ["z"])]
    opsets = [helper.make_opsetid("", build.opset)]
    build.functions.append(helper.make_function("own", "Dense", ["f", "w"], ["z"], nodes, opsets))
    logits = build.node("Dense", x, build.array(WEIGHT), domain="own")
    build.output(build.node("Softmax", logits, axis=-1), kind=TensorProto.FLOAT)
    return build


@refused("gives probabilities already")
def classes_joined_behind_the_softmax(build):
    probabilities = build.node("Softmax", build.logits(build.features()), axis=-1)
    joined = np.eye(CLASSES, 3, dtype=np.float32)
    joined[3:, 2] = 1
    build.output(build.node("MatMul", probabilities, build.array(joined)))
    return build


@refused("neither softmax")
def softmax_over_time(build):
    logits = build.logits(build.features(steps=STEPS))
    build.output(build.node("Softmax", logits, axis=1))
    return build


@refused("BatchNormalization", "neither softmax")
def batch_normalisation_over_time_steps(build):
    product = build.node("MatMul", build.features(steps=STEPS), build.array(WEIGHT))
    parts = [build.array(1 + np.abs(numbers(STEPS, seed=seed))) for seed in range(4)]
    return softmaxed(build, build.node("BatchNormalization", product, *parts))


@refused("stand on several ways", "Output 'embedding' alone", "output='embedding'")
def embedding_beside_probabilities_that_no_layer_makes(build):
    """Cosines of an embedding, which is itself made by a linear layer."""
    hidden = build.array(numbers(FEATURES, FEATURES, seed=8))
    embedding = build.node("MatMul", build.features(), hidden)
    build.output(embedding, "embedding")
    length = build.node("ReduceL2", embedding, axes=[-1], keepdims=1)
    product = build.node("MatMul", embedding, build.array(WEIGHT))
    return softmaxed(build, build.node("Div", product, length), "probabilities")


@refused("sigmoid for each of 5 classes", "Output 'label' alone")
def label_beside_a_sigmoid_for_each_class(build):
    logits = build.logits(build.features())
    build.output(build.node("ArgMax", logits, axis=-1, keepdims=0), "label")
    build.output(build.node("Sigmoid", logits), "scores")
    return build


@refused("one row of weights with 3 rows of numbers", "as ReduceMean")
def mean_over_time_steps_by_a_product(build):
    mean = build.array(np.full((1, STEPS), 1 / STEPS, np.float32))
    pooled = build.node("MatMul", mean, build.logits(build.features(steps=STEPS)))
    build.output(build.node("Squeeze", pooled, build.array(np.array([1]))))
    return build


@refused("convolution over several pixels")
def wide_convolution(build):
    features = build.node("Transpose", build.features(steps=STEPS), perm=[0, 2, 1])
    kernel = build.array(numbers(CLASSES, FEATURES, 2, seed=5))
    logits = build.node("Conv", features, kernel)
    pooled = build.node("GlobalAveragePool", logits)
    return softmaxed(build, build.node("Flatten", pooled))


@refused("TreeEnsembleClassifier", "trees")
def tree(build):
    features = build.features()
    label, scores = build.node(
        "TreeEnsembleClassifier",
        features,
        outputs=2,
        domain="ai.onnx.ml",
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_values=[0.5, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        class_treeids=[0, 0],
        class_nodeids=[1, 2],
        class_ids=[0, 1],
        class_weights=[1.0, 1.0],
        classlabels_int64s=[0, 1],
    )
    build.output(label, "label", kind=TensorProto.INT64)
    build.output(scores, kind=TensorProto.FLOAT)
    return build


@refused("without a matrix product")
def nothing_linear(build):
    x = build.input("x", numbers(9, CLASSES, seed=3))
    build.output(build.node("Softmax", build.node("Tanh", x), axis=-1))
    return build


@refused("neither softmax")
def distances_to_centres(build):
    """Logits that are not linear in the features: −‖f − c‖."""
    features = build.node("Unsqueeze", build.features(), build.array(np.array([1])))
    apart = build.node("Sub", features, build.array(WEIGHT.T.copy()[None]))
    distance = build.node("ReduceL2", apart, axes=[-1], keepdims=0)
    return softmaxed(build, build.node("Neg", distance))


@refused("sigmoid for each of 5 classes")
def linear_model_of_several_labels(build):
    _, scores = linear_classifier(
        build,
        coefficients=COEFFICIENTS,
        intercepts=BIAS.tolist(),
        classlabels_ints=list(range(CLASSES)),
        post_transform="LOGISTIC",
    )
    build.output(scores, kind=TensorProto.FLOAT)
    return build


@refused("neither softmax")
def background_class_left_out(build):
    probabilities = build.node("Softmax", build.logits(build.features()), axis=-1)
    ends = [build.array(np.array([place])) for place in (1, CLASSES, -1)]
    build.output(build.node("Slice", probabilities, *ends))
    return build


@refused("RandomNormalLike", "draws random numbers")
def noise_on_logits(build):
    logits = build.logits(build.features())
    noise = build.node("RandomNormalLike", logits, seed=1.0)
    return softmaxed(build, build.node("Add", logits, noise))


@refused("integers that never become numbers", "QuantFormat.QDQ")
def logits_that_stay_integers(build):
    quantised, scale = integers(WEIGHT)
    zero = build.array(np.uint8(128))
    of_features, of_logits = build.array(np.float32(0.08)), build.array(np.float32(0.15))
    made = build.node("QuantizeLinear", build.features(), of_features, zero)
    product = build.node(
        "QLinearMatMul", made, of_features, zero, build.array(quantised), build.array(scale),
        build.array(np.int8(0)), of_logits, zero,
    )  # fmt: skip
    given = build.array(np.float32(1 / 256)), build.array(np.uint8(0))
    made = build.node(
        "QLinearSoftmax", product, of_logits, zero, *given,
        domain="com.microsoft", axis=-1, opset=build.opset,
    )  # fmt: skip
    build.output(build.node("DequantizeLinear", made, *given))
    return build


@refused("ONNX Runtime has optimised the file", "FusedGemm", "as it was before")
def layer_and_activation_in_one_node(build):
    both = build.array(WEIGHT[:, :1].copy()), build.array(BIAS[:1])
    domain = "com.microsoft"
    build.output(
        build.node("FusedGemm", build.features(), *both, domain=domain, activation="Sigmoid"),
        kind=TensorProto.FLOAT,
    )
    return build
