//! Codes of building and running a session, in the order in which they can be met. A pure list.

crate::codes::codes! {
    // ---- building
    NO_EPS = "no-eps", "0.1.0", "No execution provider was given",
        "A session was to be built without any execution provider, and the model has nodes that must run somewhere.",
        "Load an EP and hand it to the session's builder; `ortolan ep list` shows what there is.";
    BAD_OPTION = "bad-option", "0.1.0", "An option has no sensible value",
        "An option of the session or of the run is outside the range that it can have.",
        "Use a value in the range that the sentence states.";
    EP_NEW_FAILED = "ep-new-failed", "0.1.0", "The EP did not start on its device",
        "The EP refused to be created for this session: an unknown option, a device that is gone, or a reason of its own.",
        "The EP's words say what to do; `ortolan ep info NAME` lists its options and devices.";
    UNPLACED = "unplaced", "0.1.0", "No EP runs a node",
        "No execution provider of the session claims the node; the sentence has each one's reason.",
        "Add an EP that has the operator for these types, or change the model as the reasons say.";
    UNKNOWN_RANK = "unknown-rank", "0.1.0", "The rank of a value is not known",
        "The rank of a value follows neither from the model nor from its inputs' shapes, and no EP can be asked about it.",
        "State the shapes of the model's inputs, or export the model with known ranks.";
    UNTYPED = "untyped", "0.1.0", "The type of a value is not known",
        "An operator that this build does not know makes the value, and no EP says of what type it is.",
        "Load the EP that brings the operator, or remove the operator from the model.";
    COMPILE_FAILED = "compile-failed", "0.1.0", "An EP could not compile a part",
        "The EP had claimed the nodes but failed to compile them; they were offered to the others.",
        "The EP's words say why; leave the EP out to see whether the model runs without it.";
    // ---- where a node runs, and why not elsewhere
    NOT_CONVEX = "not-convex", "0.1.0", "The group would have to wait for itself",
        "The EP claims the node only together with others, and a node that runs elsewhere stands between them.",
        "Let the EP claim the node in between too, or claim smaller groups.";
    DOES_NOT_PAY = "does-not-pay", "0.1.0", "Running it there would not pay",
        "By the EPs' own estimates, moving the data there and back costs more than is gained.",
        "Set the session's minimum gain to 0 to place it there anyway.";
    TAKEN_BY = "taken-by", "0.1.0", "A preferred EP runs it",
        "An EP that comes earlier in the session's order, or costs less, runs the node.",
        "Change the order of the EPs if it should run elsewhere.";
    UNANSWERED = "unanswered", "0.1.0", "The EP gave no answer",
        "The EP neither claimed nor rejected a node that it was asked about. It counts as rejected.",
        "Report it to the EP's author: every node is to be answered once.";
    NOT_ASKED = "not-asked", "0.1.0", "The EP was not asked",
        "The node cannot be written in the opset in which the EP wants its programs.",
        "Use an EP that is built for a newer opset.";
    // ---- values and arguments
    BAD_VALUE = "bad-value", "0.1.0", "Data and shape do not fit together",
        "The number of elements or bytes is not what type and shape ask for, or a size is negative or too large.",
        "Hand over as many elements as the shape says.";
    VALUE_KIND = "value-kind", "0.1.0", "The value is of another kind",
        "A tensor was wanted and there is a sequence, optional or map, or its elements are of another type than was asked for.",
        "Ask for the kind and element type that the sentence states.";
    INPUT_UNKNOWN = "input-unknown", "0.1.0", "The model has no such input",
        "An input was given under a name that the model does not have, or twice.",
        "Use the names that the sentence lists.";
    INPUT_MISSING = "input-missing", "0.1.0", "An input is missing",
        "The model cannot run without an input that was not given.",
        "Give the input; `ortolan inspect MODEL` lists names, types and shapes.";
    INPUT_TYPE = "input-type", "0.1.0", "An input has another type",
        "The element type or the kind of an input is not the one that the model declares.",
        "Convert the input to the type that the sentence states.";
    INPUT_SHAPE = "input-shape", "0.1.0", "An input has another shape",
        "The rank or a fixed dimension of an input is not the one that the model declares, or sizes of inputs contradict each other.",
        "Give the input in the shape that the sentence states.";
    OUTPUT_UNKNOWN = "output-unknown", "0.1.0", "The model has no such output",
        "An output was asked for or bound under a name that the model does not have.",
        "Use the names that the sentence lists.";
    BOUND_SHAPE = "bound-shape", "0.1.0", "A bound output does not fit",
        "The buffer that was bound for an output has another element type or is too small for what the run made.",
        "Bind a buffer of the type and size that the sentence states, or none.";
    // ---- running
    CANCELLED = "cancelled", "0.1.0", "The run was cancelled",
        "The run stopped because its cancel token was set. The session can be used again.",
        "Run again without cancelling.";
    TIMEOUT = "timeout", "0.1.0", "The run took too long",
        "The run stopped because it had not finished within its timeout. The session can be used again.",
        "Allow more time, use more threads, or run a smaller input.";
    MEMORY_LIMIT = "memory-limit", "0.1.0", "The run would need too much memory",
        "A buffer was asked for that would go beyond the run's or the session's memory limit.",
        "Raise the limit or run a smaller input.";
    OUT_OF_MEMORY = "out-of-memory", "0.1.0", "The system has no memory left",
        "The system refused a buffer, or an EP said that its memory is full.",
        "Run a smaller input or fewer sessions at once.";
    ASSUMPTION = "assumption", "0.1.0", "Sizes contradict each other in this run",
        "The shapes of this run's inputs make sizes inside the model contradict each other.",
        "Give inputs whose shapes fit together; the sentence names the node and what it needs.";
    EP_FAILED = "ep-failed", "0.1.0", "An EP failed",
        "An execution provider reported an error of its own.",
        "The EP's words say what to do.";
    DEVICE_LOST = "device-lost", "0.1.0", "A device is gone",
        "The device of an execution provider is lost: unplugged, reset or hung. What lay on it is lost with it.",
        "Run again: the session goes on with its other EPs. A new session may open the device anew.";
    EP_PANIC = "ep-panic", "0.1.0", "An EP panicked",
        "A panic inside an execution provider was caught at the border. The session can be used again.",
        "Report it to the EP's author.";
    EP_FAULT = "ep-fault", "0.1.0", "An EP broke a rule of the ABI",
        "An execution provider called the host with arguments that the ABI does not allow; the sentence names call and argument.",
        "Report it to the EP's author; the call was refused.";
    NO_COPY = "no-copy", "0.1.0", "Nobody moves the value",
        "A value lies in a memory space whose EP offers no copy, so that it cannot be brought to where it is needed.",
        "Report it to the EP's author: who owns a memory space has to copy.";
    FENCE_LOST = "fence-lost", "0.1.0", "A run never finished",
        "An execution provider returned from a run that was to finish later, and did not finish after the run was stopped.",
        "Report it to the EP's author; restart the process to get the memory of that run back.";
    DATA = "data", "0.1.0", "A value inside the model is impossible",
        "A number that a node computed cannot be used for what it is needed for: a trip count, a condition, a size.",
        "Check the inputs; the sentence names the node and the value.";
    INTERNAL = "internal", "0.1.0", "A fault in Ortolan itself",
        "Something happened that the code rules out. The run or build was stopped; nothing was computed wrongly.",
        "Report it with the sentence and the model.";
}
