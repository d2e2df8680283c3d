"""The strings that travel between the server and the nodes.

They are Flower's own wherever Flower has one, so that either side also works with a stock
counterpart: a stock strategy with our ClientApp, a stock ClientApp with our strategies.
"""

ARRAYS = "arrays"  # ArrayRecord: the model, every parameter and buffer by name
CONFIG = "config"  # ConfigRecord: what the server tells a node about this round
METRICS = "metrics"  # MetricRecord: what a node tells the server about its work
CONTROL = "control"  # ArrayRecord: SCAFFOLD's variate c; in a reply, the change of c_k

# Records of a node's state, beside CONTROL, which is c_k there.
CONTROL_BEFORE = "control-before"  # ArrayRecord: the c_k before it
CONTROL_ROUNDS = "control-rounds"  # ConfigRecord: the rounds that made the two, 0 for c_k = 0

# Keys of the ConfigRecord.
SERVER_ROUND = "server-round"
PROXIMAL_MU = "proximal-mu"
SOURCE_HASH = "source-hash"
CONTROL_OPTION = "control-option"  # how c_k is renewed, 1 or 2
CONTROL_LOST = "control-lost"  # the partitions whose last change of c_k has not been counted
CONTROL_COUNTED = "control-counted"  # for each of them the round of the last that has; 0 for none

# Keys of the MetricRecord.
NUM_EXAMPLES = "num-examples"
PARTITION_ID = "partition-id"
LOSS = "loss"
ACCURACY = "accuracy"
LOCAL_STEPS = "local-steps"
CLIENT_SECONDS = "client-seconds"
LEARNING_RATE = "learning-rate"
GRADIENT_VARIANCE = "gradient-variance"  # also the key of the ConfigRecord that asks for it

# Keys that a strategy adds to the metrics of a round.
STEP_SIZE = "step-size"
REPLIES = "replies"
FAILED = "failed"
