"""What stands in for a SuperLink agrees with itself."""

from flwr.app import Message, RecordDict

from strategies.shared import flower_private


def test_the_server_and_its_messages_are_of_one_run() -> None:
    flower_private.become_server()
    message = Message(RecordDict(), 7, "train")
    context = flower_private.server_context({"rounds": "3"})
    assert context.run_id == message.metadata.run_id
    assert context.node_id == message.metadata.src_node_id == flower_private.SUPERLINK_NODE_ID
    assert context.run_config == {"rounds": "3"}


def test_a_failed_node_answers_the_message_that_it_was_sent() -> None:
    flower_private.become_server()
    requests = [Message(RecordDict(), 7, "train") for _ in range(2)]
    for request in requests:
        flower_private.assign_message_id(request)
    reply = flower_private.make_failed_reply(requests[1], "out of memory")
    assert reply.error.reason == "out of memory"
    assert reply.metadata.reply_to_message_id == requests[1].metadata.message_id
    assert requests[0].metadata.message_id != requests[1].metadata.message_id
