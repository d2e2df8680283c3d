"""The ClientApp: answers queries, trains and evaluates.

A node knows nothing of the strategy it serves: what a round asks of it is in the message.
"""

from collections.abc import Callable, Mapping, Sequence

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from strategies.shared import client_state, protocol
from strategies.shared.codecs import COMPRESSIONS, requested_compression
from strategies.shared.compression import Compression

from .correction import Correction
from .evaluation import evaluate
from .measures import answer_question
from .methods.scaffold import RESTRICTION_ERROR, ControlVariate
from .methods.uga import CORRECTIONS_ERROR
from .optimizer_step import has_state
from .privacy import check_demand, refuse_evaluation, refuse_question
from .private import restore
from .round import (
    BUILT_IN,
    ClientRound,
    Node,
    get_record,
    load_chosen,
    load_sent,
    make_reply,
    make_round_start,
    partition_id_of,
    requested_corrections,
)
from .training import LocalTraining, changes_initial_model, correction_class


def describe_error(error: BaseException) -> str:
    """Return an error's whole message: for nodes of whoever runs the server."""
    return str(error) or type(error).__name__


def client_app(
    node_of: Callable[[Message, Context], Node],
    describe: Callable[[BaseException], str] = describe_error,
    mods: Sequence[Mod] = (),
) -> ClientApp:
    """Return a ClientApp.

    Parameters
    ----------
    node_of : builds the node that a message is for
    describe : turns an error into the reason that the server receives from a site that takes no part
    mods : Flower mods, wrapped around every handler
    """
    app = ClientApp(mods=list(mods))

    @app.query()
    def query(message: Message, context: Context) -> Message:
        if protocol.PARTITION_ID in context.node_config:
            held = int(context.node_config[protocol.PARTITION_ID])
            return make_reply(message, {protocol.PARTITION_ID: held})
        answer = ConfigRecord({protocol.SITE: str(context.node_config.get(protocol.SITE, ""))})
        try:
            node_of(message, context)
            check_demand(context.node_config, get_record(ConfigRecord, message.content, protocol.CONFIG))
        except Exception as error:  # whatever is wrong
            answer[protocol.REFUSED] = describe(error)
        return Message(RecordDict({protocol.CONFIG: answer}), reply_to=message)

    @app.query(protocol.QUESTION.partition(".")[2])
    def measure(message: Message, context: Context) -> Message:
        refuse_question(context.node_config)
        return answer_question(node_of(message, context), message, context)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return ClientRound(node_of(message, context), message, context).run()

    @app.evaluate()
    def evaluate_(message: Message, context: Context) -> Message:
        refuse_evaluation(context.node_config)
        return evaluate_node(node_of(message, context), message, context)

    return app


def evaluate_node(node: Node, message: Message, context: Context) -> Message:
    """Return the reply to an evaluation: the metrics of the message's model, or of the node's own."""
    sent, frozen = load_sent(node, message, context.state)
    memory = client_state.load(context.state, message.metadata.group_id)
    config = get_record(ConfigRecord, message.content, protocol.CONFIG)
    if protocol.NUM_MODELS in config:
        place = 0, partition_id_of(context, config)  # no round's seed: equal models evaluate alike
        start = make_round_start(node, node.training, message.content, memory, *place)
        load_chosen(node, start, node.training, sent, frozen)
    personalise_model(node, memory, message.content)
    metrics: dict[str, float] = {protocol.NUM_EXAMPLES: len(node.test)}
    if len(node.test):
        metrics |= evaluate(node.model, node.test, node.task)
    return make_reply(message, metrics | {protocol.PARTITION_ID: partition_id_of(context, config)})


def personalise_model(node: Node, state: RecordDict, content: RecordDict) -> None:
    """Turn the loaded model of a message (``content``) into the one that the node evaluates."""
    training = node.training
    restore(node.model, training.private, state)
    if training.personal is not None:
        personal = training.personal.for_message(content)
        personal.personalise(node.model, node.train, node.task, training.batch_size, state)


def check_training(
    training: LocalTraining,
    config: Mapping[str, object],
    known: Sequence[type[Correction]] = BUILT_IN,
    compressions: Sequence[type[Compression]] = COMPRESSIONS,
) -> None:
    """Raise ``ValueError`` where a node could not do what messages with this configuration ask for.

    They may ask for the corrections ``known``, and for ``compressions``.
    """
    compression = requested_compression(config, compressions) if protocol.COMPRESSION in config else None
    restricted = compression is not None and compression.restricts
    requested = requested_corrections(config, known)
    if not training.can_correct and (restricted or requested):
        raise ValueError(CORRECTIONS_ERROR)
    for kind in requested:
        if training.private and kind.shares_all:
            raise ValueError(
                f"client.private={list(training.private)} with a strategy that asks nodes for {kind.__name__}, "
                "which pulls them towards each other, and a private part has no counterpart; choose another "
                "strategy"
            )
        kind.check(training.optimizer, config)
    if restricted and ControlVariate in requested and ControlVariate.uses_displacement(config):
        raise ValueError(RESTRICTION_ERROR)
    for name, begin in training.corrections.items():
        if correction_class(begin) in requested:
            raise ValueError(
                f"client.corrections.{name}: the strategy asks for the same, so it would act twice; leave "
                "it out, or choose strategy=fedavg"
            )
    if protocol.COMMUNICATION_PROBABILITY in config and training.stragglers > 0:
        raise ValueError(
            f"client.stragglers={training.stragglers}: strategy=scaffnew draws how many steps all nodes take; "
            "set client.stragglers=0, or choose strategy=scaffold"
        )
    feeds_back = compression is not None and compression.error_feedback
    if feeds_back and config.get(protocol.EFFECTIVE_STEPS) and training.stragglers > 0:
        raise ValueError(
            "compression.error_feedback=true with aggregation=normalized and client.stragglers above 0: "
            "what one round leaves out would be weighed by another round's steps; leave one of the three out"
        )
    _check_displacement(
        training, requested, any(kind.uses_displacement(config) for kind in requested), restricted
    )


def _check_displacement(
    training: LocalTraining, requested: Sequence[type[Correction]], reads: bool, restricted: bool
) -> None:
    """Refuse what moves a node besides this round's gradients, where the method assumes these alone."""
    if training.keep_optimizer and has_state(training.optimizer) and (reads or restricted):
        who = "strategy=scaffold's option 2 or aggregation=normalized" if reads else "a compression"
        counts = (
            "treats a node's change as the gradients of" if reads else "sends no more than the gradients of"
        )
        raise ValueError(
            f"client.keep_optimizer=true: {who} {counts} the round alone, and the optimiser's state "
            "would add to it; set client.keep_optimizer=false"
        )
    corrections = {f"client.corrections.{name}": begin for name, begin in training.corrections.items()}
    corrections |= {f"{kind.__name__}, which the strategy asks for": kind for kind in requested}
    for name, begin in corrections.items():
        if not changes_initial_model(begin):
            continue
        if training.personal is not None and training.personal.has_fixed_start:
            personal = type(training.personal).__name__
            raise ValueError(
                f"{name}: client.personal={personal} keeps a node's own model near "
                "the one that it was sent, which this would replace; leave one of the two out"
            )
        if reads:
            raise ValueError(
                f"{name}: strategy=scaffold's option 2, scaffnew, fedcm and aggregation=normalized treat "
                "the change from the server's model as gradients; leave it out (or set SCAFFOLD's option 1)"
            )
        if restricted:
            raise ValueError(
                f"{name}: compression=random_mask or low_rank would send no more than a "
                "share of the change from the server's model; leave it out, or choose another compression"
            )
