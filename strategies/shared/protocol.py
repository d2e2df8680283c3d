"""The strings that travel between the server and the nodes.

They are Flower's own wherever Flower has one, so that either side also works with a stock
counterpart: a stock strategy with our ClientApp, a stock ClientApp with our strategies.
"""

ARRAYS = "arrays"  # ArrayRecord: the model, every parameter and buffer by name
CONFIG = "config"  # ConfigRecord: what the server tells a node about this round
METRICS = "metrics"  # MetricRecord: what a node tells the server about its work
CONTROL = "control"  # ArrayRecord: SCAFFOLD's variate c; in a reply, the change of c_k
MOMENTUM = "momentum"  # ArrayRecord of a message: FedCM's and Mime-lite's
FULL_GRADIENT = (
    "full-gradient"  # ArrayRecord of a reply: that of a node's examples at the model it was sent
)
PROTOTYPES = "prototypes"  # ArrayRecord: FedProto's means of representations by class; also a key, which asks for them
CODES = "codes"  # ArrayRecord of a reply: compressed arrays of the update, which ARRAYS then lacks
RECORDS = (ARRAYS, CONFIG, METRICS, CODES)  # no strategy's own record is called so

# Records of a node's state, beside CONTROL, which is c_k there.
CONTROL_BEFORE = "control-before"  # ArrayRecord: the c_k before it
CONTROL_END = "control-end"  # ArrayRecord: where a node of Scaffnew ended the round that made its h_k
CONTROL_ROUNDS = "control-rounds"  # ConfigRecord: the rounds that made the two, 0 for c_k = 0

# The type of a message: Flower's own train, evaluate and query, and one of its named queries.
QUESTION = "query.measure"  # asks for metrics of a node's training examples at the model that it is sent

# Keys of the ConfigRecord.
SERVER_ROUND = "server-round"
PROXIMAL_MU = "proximal-mu"
CLIENT_MOMENTUM = "client-momentum"  # of FedCM: how much a node's own gradient counts
MIME_SHARE = "mime-share"  # the same of Mime-lite
DYNAMIC_ALPHA = "dynamic-alpha"  # of FedDyn
COMMUNICATION_PROBABILITY = "communication-probability"  # of Scaffnew
PROTOTYPE_WEIGHT = "prototype-weight"  # of FedProto
NUM_MODELS = "num-models"  # of a message whose nodes choose among several (:func:`model_key`)
SOURCE_HASH = "source-hash"
SITE = "site"  # in a node's answer to a query, and in its configuration: its name, where data are its own
REFUSED = "refused"  # in a node's answer to a query: why it takes no part
PRIVACY = (
    "privacy"  # CENTRAL or LOCAL: what the strategy promises; in a node's configuration what it demands
)
CENTRAL, LOCAL = "central", "local"
PRIVACY_CLIP = "privacy-clip"
PRIVACY_NOISE = "privacy-noise"  # the noise multiplier
PRIVACY_SEED = (
    "privacy-seed"  # decides the noise of the nodes; without it each node's operating system does
)
FROZEN = "frozen"  # the hash of the frozen parameters; in a reply: the node has them
FROZEN_NAMES = "frozen-names"  # their names, where a message brings them
KEPT = "kept"  # in a reply of a node that keeps anything between rounds: whether it had any when asked
COMPRESSION = "compression"  # its kind; its settings are told by keys that begin with this
MEASURES = "measures"  # of a question: the names of the metrics
MEASURED_EXAMPLES = "measured-examples"  # of a question: on how many examples; without it on all
CONTROL_OPTION = "control-option"  # how c_k is renewed, 1 or 2
CONTROL_LOST = "control-lost"  # whose last change of c_k, or FedDyn's g_k, has not been counted
CONTROL_COUNTED = "control-counted"  # for each of them the round of the last that has; 0 for none

# Keys of a node's own configuration, besides SITE and PARTITION_ID.
SITE_FILE = "site-file"  # the file in which a site's owner says what an experiment may do there
DATA = "data"  # the path of a site's data, of a node without such a file
MIN_NOISE = "min-noise"  # the least noise multiplier for which it works

# Keys of the MetricRecord.
NUM_EXAMPLES = "num-examples"
PARTITION_ID = "partition-id"  # to a site, which has none, also in the ConfigRecord
LOSS = "loss"
ACCURACY = "accuracy"
LOCAL_STEPS = "local-steps"  # also the key of the ConfigRecord that sets them for a round
CLIENT_SECONDS = "client-seconds"
LEARNING_RATE = "learning-rate"
GRADIENT_VARIANCE = "gradient-variance"  # also the key of the ConfigRecord that asks for it
START_LOSS = "start-loss"  # a node's loss at the model that it was sent; a key asks for it, too
CHOSEN_MODEL = "chosen-model"  # the number of the model that a node has chosen and trained
SQUARED_LOSS = "squared-loss"  # the mean of its examples' squared losses there; a key asks for it, too
INEXACTNESS = "inexactness"  # the norm of the last gradient of a node's objective over that of the first
EFFECTIVE_STEPS = "effective-steps"  # how many rates a gradient of 1 moves a node; a key asks for it, too

# Keys that a strategy adds to the metrics of a round.
STEP_SIZE = "step-size"
MASKED = "masked-share"
EPSILON = "epsilon"
CLIP = "clip"
REPLIES = "replies"
FAILED = "failed"
VIRTUAL_SECONDS = "virtual-seconds"  # that the round took by the clock
STALENESS = "staleness"  # server steps since a node was sent the model that its update is from
DROPPED = "dropped"  # nodes that were chosen and did not take part: participation.dropout


def model_key(number: int) -> str:
    """Return the name of the record with a message's model 0, 1, ...; the first has the usual one."""
    return f"{ARRAYS}-{number}" if number else ARRAYS
