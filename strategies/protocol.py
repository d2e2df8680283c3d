"""The strings that travel between the server and the nodes.

They are Flower's own wherever Flower has one, so that either side also works with a stock
counterpart: a stock strategy with our ClientApp, a stock ClientApp with our strategies.
"""

ARRAYS = "arrays"  # ArrayRecord: the model, every parameter and buffer by name
CONFIG = "config"  # ConfigRecord: what the server tells a node about this round
METRICS = "metrics"  # MetricRecord: what a node tells the server about its work

# Keys of the ConfigRecord.
SERVER_ROUND = "server-round"
PROXIMAL_MU = "proximal-mu"
SOURCE_HASH = "source-hash"

# Keys of the MetricRecord.
NUM_EXAMPLES = "num-examples"
PARTITION_ID = "partition-id"
LOSS = "loss"
ACCURACY = "accuracy"
LOCAL_STEPS = "local-steps"
CLIENT_SECONDS = "client-seconds"

# Keys that a strategy adds to the metrics of a round.
STEP_SIZE = "step-size"
REPLIES = "replies"
FAILED = "failed"
