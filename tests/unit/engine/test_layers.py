from deploykit.engine.layers import parse_layers, summarize

FP32_CONV = (
    "Name: node_Conv_299_myl0_5, LayerType: correlation, Inputs: [ { Name: relu_2.1_21_myl0, "
    "Dimensions: [-1,64,16,16], "
    "Strides: [16384,1,1024,64], StrideOrder: [3,0,2,1], Datatype: Float, Format: (NHWC) Channel major format }, "
    "{ Name: relu_1.1_20_myl0, Dimensions: [-1,64,16,16], Strides: [16384,1,1024,64], StrideOrder: [3,0,2,1], "
    "Datatype: Float, Format: (NHWC) Channel major format }], Constants: [ { Name: __mye2192dconst_myl0, Dimensions: "
    "[64,64,3,3], Strides: [576,1,192,64], StrideOrder: [3,0,2,1], Datatype: Float, Format: (NHWC) Channel major "
    "format }], "
    "Outputs: [ { Name: relu_3.1_22_myl0, Dimensions: [-1,64,16,16], Strides: [16384,1,1024,64], StrideOrder: "
    "[3,0,2,1], Datatype: Float, Format: (NHWC) Channel major format }], TacticName: __myelin_CASK_STUB, StreamId: 0, "
    "Metadata: [ONNX Layer: node_Conv_299][ONNX Layer: node_relu_2][ONNX Layer: node_add_65]"
)
INT8_CONV = FP32_CONV.replace("Datatype: Float", "Datatype: Int8", 3).replace(
    "node_Conv_299", "node_Conv_1"
)  # inputs and weights are Int8, the output stays Float
MOVE = (
    "Name: __myl_Move_myl0_1, LayerType: kgen, Inputs: [ { Name: x, Dimensions: [-1,3,64,64], Strides: [1,1,1,1], "
    "StrideOrder: [3,2,1,0], Datatype: Float, Format: (Linear) Row major linear format }], Constants: [], Outputs: [ "
    "{ Name: y, Dimensions: [-1,3,64,64], Strides: [1,1,1,1], StrideOrder: [3,0,2,1], Datatype: Half, Format: (NHWC) "
    "Channel major format }], TacticName: __myl_Move_0xe7, StreamId: 0, Metadata: "
)
REQUANTIZE = MOVE.replace("__myl_Move_myl0_1", "__myl_MulMinMaxRounCast_myl0_3")
SHAPES = "Name: __mye957_0_myl0_0, LayerType: shape_call, Inputs: [], Constants: [], Outputs: [], TacticName: "
TABLE = "Layers:\n" + "\n".join([SHAPES, MOVE, FP32_CONV, REQUANTIZE, INT8_CONV])


def test_a_fused_layer_names_its_nodes_types_and_shapes() -> None:
    (layer,) = parse_layers(["Layers:\n" + FP32_CONV])
    assert layer.onnx_nodes == ("node_Conv_299", "node_relu_2", "node_add_65")
    assert (layer.type, layer.precision) == ("correlation", "fp32")
    assert [tensor.name for tensor in layer.inputs] == ["relu_2.1_21_myl0", "relu_1.1_20_myl0"]
    assert layer.outputs[0].shape == (-1, 64, 16, 16)


def test_the_precision_of_a_convolution_is_that_of_its_weights() -> None:
    (layer,) = parse_layers(["Layers:\n" + INT8_CONV])
    assert layer.precision == "int8"
    assert layer.outputs[0].dtype == "fp32"


def test_the_summary_counts_kernels_reformats_and_traffic() -> None:
    summary = summarize(parse_layers(["Other message", TABLE]))
    assert (summary.layers, summary.kernels, summary.reformats) == (5, 2, 1)
    # Three tensors of 64 x 16 x 16 at each convolution, 4 bytes but for two inputs in INT8; two moves of 3 x 64 x 64.
    convolutions = 64 * 16 * 16 * (3 * 4 + 1 + 1 + 4)
    assert summary.traffic_bytes == convolutions + 2 * 3 * 64 * 64 * (4 + 2)


def test_lines_that_are_no_layers_are_skipped() -> None:
    assert parse_layers(["Layers:\nnonsense\nName: x\n\n" + SHAPES])[0].type == "shape_call"
    assert parse_layers(["no table"]) == ()
