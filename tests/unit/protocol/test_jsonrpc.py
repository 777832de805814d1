from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw, UnsetType

from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.protocol.jsonrpc import Malformed, RpcMessage
from tests.cases import each_case

IDS = [
    b"1",
    b"0",
    b"-7",
    b'"1"',
    b'""',
    b"1.5",
    b"1.0",
    b"1e3",
    b"123456789012345678901234567890",
    b'"with \\"quotes\\" and \\\\ and \\u00e9"',
    '"☕"'.encode(),
    b"null",
]
DEEP = b"[" * 100_000 + b"]" * 100_000


def read(data: bytes) -> RpcMessage:
    message = jsonrpc.parse(data)
    assert isinstance(message, RpcMessage)
    return message


def text(raw: Raw | UnsetType) -> bytes:
    assert raw is not UNSET
    return bytes(raw)


class TestParse:
    @each_case("id", IDS)
    def test_an_id_keeps_its_exact_bytes(self, id: bytes) -> None:
        assert text(read(b'{"jsonrpc":"2.0","id": %b ,"method":"ping"}' % id).id) == id

    def test_a_number_and_its_text_are_different_ids(self) -> None:
        assert text(read(b'{"id":1}').id) != text(read(b'{"id":"1"}').id)

    def test_a_request_has_method_and_id_and_its_params_stay_as_they_came(self) -> None:
        message = read(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{ "b":1.0, "a" : "\\u00e9" }}'
        )
        assert message.method == "tools/call"
        assert text(message.params) == b'{ "b":1.0, "a" : "\\u00e9" }'
        assert message.result is UNSET
        assert message.error is UNSET

    @each_case("body", [b"null", b"0", b'""', b"[]", b"{}", b"false", b'{"a":{"id":9}}'])
    def test_a_result_of_any_type_is_a_result(self, body: bytes) -> None:
        assert text(read(b'{"jsonrpc":"2.0","id":1,"result":%b}' % body).result) == body

    def test_a_notification_has_no_id(self) -> None:
        message = read(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        assert message.id is UNSET
        assert message.params is UNSET

    def test_an_error_stays_as_it_came(self) -> None:
        message = read(b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m","data":[1, 2]}}')
        assert text(message.error) == b'{"code":-1,"message":"m","data":[1, 2]}'

    def test_unknown_fields_are_no_obstacle(self) -> None:
        message = read(b'{"x":{"id":2},"jsonrpc":"2.0","id":1,"result":{},"trace":[{"method":"no"}]}')
        assert text(message.id) == b"1"
        assert message.method is UNSET

    def test_a_missing_or_different_version_is_no_obstacle(self) -> None:
        assert read(b'{"id":1,"method":"a"}').method == "a"
        assert read(b'{"jsonrpc":2.0,"id":1,"method":"a"}').method == "a"

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
            max_leaves=20,
        ),
        st.booleans(),
    )
    def test_any_json_params_leave_as_the_same_bytes(self, value: object, ascii: bool) -> None:
        params = json.dumps(value, ensure_ascii=ascii).encode()
        assert text(read(jsonrpc.request(b"1", "m", params)).params) == params


class TestMalformed:
    @each_case(
        "data",
        [
            b"",
            b"{",
            b'{"jsonrpc":"2.0","id":1',
            b'{"id":1}{"id":2}',
            b'{"id":1}x',
            b'{"id":01}',
            b"{'id':1}",
            b'{"params":NaN}',
            b'{"params":"a\nb"}',
            b'{"params":"\\x"}',
            b'{"params":"\\ud83',
            b'{"params":' + DEEP + b"}",
        ],
        ids=lambda data: data[:24],
    )
    def test_invalid_json_is_told_apart(self, data: bytes) -> None:
        malformed = jsonrpc.parse(data)
        assert isinstance(malformed, Malformed)
        assert not malformed.is_json
        assert malformed.reason
        assert malformed.id == b"null"

    @each_case(
        ("data", "id"),
        [
            (b"[]", b"null"),
            (b"1", b"null"),
            (b'"text"', b"null"),
            (b"null", b"null"),
            (b'{"jsonrpc":"2.0","id":7,"method":5}', b"7"),
            (b'{"jsonrpc":"2.0","method":["x"],"id":"a"}', b'"a"'),
            (b'{"jsonrpc":"2.0","method":{},"params":{"id":7}}', b"null"),
        ],
    )
    def test_json_of_the_wrong_shape_keeps_its_id_where_it_has_one(self, data: bytes, id: bytes) -> None:
        malformed = jsonrpc.parse(data)
        assert isinstance(malformed, Malformed)
        assert malformed.is_json
        assert malformed.id == id


class TestLoneSurrogates:
    """Programs that count in UTF-16 cut emojis in two; their messages must arrive all the same."""

    @each_case(
        ("given", "expected"),
        [
            (b'"cut \\ud83d"', b'"cut \\ufffd"'),
            (b'"\\ude00 rest"', b'"\\ufffd rest"'),
            (b'"\\uD83D\\uD83D\\uDE00"', b'"\\ufffd\\uD83D\\uDE00"'),
            (b'"\\ud83d\\u0041\\ud83d\\n"', b'"\\ufffd\\u0041\\ufffd\\n"'),
            (b'{"k\\udfff":["\\\\ud800","\\\\\\ud800"]}', b'{"k\\ufffd":["\\\\ud800","\\\\\\ufffd"]}'),
        ],
    )
    def test_a_half_is_replaced_and_all_else_stays(self, given: bytes, expected: bytes) -> None:
        assert text(read(b'{"jsonrpc":"2.0","id":1,"result":%b}' % given).result) == expected

    @each_case("whole", [b'"\\ud83d\\ude00"', b'"\\\\ud800"', '"😀"'.encode(), b'"\\u0041"'])
    def test_a_complete_value_is_not_touched(self, whole: bytes) -> None:
        assert jsonrpc.replace_lone_surrogates(whole) == whole
        assert text(read(b'{"id":1,"result":%b}' % whole).result) == whole

    @given(st.text(st.characters(exclude_categories=()), max_size=30))
    def test_any_escape_of_a_program_can_be_read(self, value: str) -> None:
        result = text(read(b'{"id":1,"result":%b}' % json.dumps(value).encode()).result)
        assert msgspec.json.decode(result) == value.encode("utf-16", "surrogatepass").decode(
            "utf-16", "replace"
        )


class TestBatch:
    def test_its_members_come_apart_as_they_came(self) -> None:
        assert jsonrpc.split_batch(b'[{"id":1, "method":"a"}, {"id":"2","result":{}} ,7,null]') == [
            b'{"id":1, "method":"a"}',
            b'{"id":"2","result":{}}',
            b"7",
            b"null",
        ]

    def test_an_empty_one_has_none(self) -> None:
        assert jsonrpc.split_batch(b"[]") == []

    def test_half_an_emoji_in_a_member_is_no_obstacle(self) -> None:
        assert jsonrpc.split_batch(b'[{"id":1,"result":"\\ud83d"}]') == [b'{"id":1,"result":"\\ufffd"}']

    @each_case("data", [b"[", b"[1,]", b"{}", b'["\xff"', DEEP], ids=lambda data: data[:8])
    def test_unreadable_data_is_malformed(self, data: bytes) -> None:
        assert isinstance(jsonrpc.split_batch(data), Malformed)


class TestParseError:
    def test_code_message_and_data_are_read(self) -> None:
        error = jsonrpc.parse_error(Raw(b'{"code":-32042,"message":"quota","data":{"a": 1},"more":0}'))
        assert (error.code, error.message, text(error.data)) == (-32042, "quota", b'{"a": 1}')

    @each_case(
        "poor",
        [b"null", b'"just text"', b"[1]", b'{"code":"x"}', b'{"message":5}', DEEP],
        ids=lambda data: data[:8],
    )
    def test_a_poor_one_is_its_own_message(self, poor: bytes) -> None:
        error = jsonrpc.parse_error(Raw(poor))
        assert error.message == poor[:200].decode()

    def test_an_empty_one_is_empty(self) -> None:
        error = jsonrpc.parse_error(Raw(b"{}"))
        assert (error.code, error.message, error.data) == (0, "", UNSET)


class TestCleanText:
    @each_case("data", [b"", b"plain", "naïve ☕ 🎉 \U0010ffff".encode()])
    def test_utf8_is_the_same_object(self, data: bytes) -> None:
        assert jsonrpc.replace_invalid_utf8(data) is data

    @each_case(
        ("bad", "good"),
        [
            (b"caf\xe9", "caf�"),
            (b"\xff\xfe", "��"),
            (b"\xc3", "�"),
            (b"\xed\xa0\x80", "���"),
            (b"\xf5\x80", "��"),
            (b"\xc0\xaf", "��"),
            ("é".encode() + b"\xe9" + "é".encode(), "é�é"),
        ],
    )
    def test_each_bad_sequence_is_replaced(self, bad: bytes, good: str) -> None:
        assert jsonrpc.replace_invalid_utf8(bad) == good.encode()

    @given(st.binary(max_size=40))
    def test_a_message_with_any_bytes_in_a_string_can_be_read(self, junk: bytes) -> None:
        junk = bytes(byte for byte in junk if byte >= 0x20 and byte not in b'"\\')
        message = read(jsonrpc.replace_invalid_utf8(b'{"jsonrpc":"2.0","id":1,"result":"' + junk + b'"}'))
        assert msgspec.json.decode(text(message.result)) == junk.decode("utf-8", "replace")


class TestFindId:
    @each_case("id", [id for id in IDS if id != b"null"])
    @each_case(
        "form",
        [
            b'{"jsonrpc":"2.0","id":%b,"result":',
            b'{ "jsonrpc" : "2.0" , "id" : %b , "result":',
            b'{"id":%b,"jsonrpc":"2.0","error":',
            b'  {"id":%b,',
            b'\xef\xbb\xbf{"id":%b,',
        ],
    )
    def test_it_is_found_at_the_front(self, id: bytes, form: bytes) -> None:
        assert jsonrpc.find_id(form % id, b"") == id

    @each_case("id", [id for id in IDS if id != b"null"])
    @each_case(
        "form", [b'xx","id":%b}', b'x],"jsonrpc":"2.0","id":%b}', b'},"id": %b ,"jsonrpc": "2.0" } \r']
    )
    def test_it_is_found_at_the_back(self, id: bytes, form: bytes) -> None:
        assert jsonrpc.find_id(b'{"result":"xxxx', form % id) == id

    @each_case(
        ("head", "tail"),
        [
            (b'{"jsonrpc":"2.0","result":{"id":5,', b'"id":5}}'),
            (b'{"jsonrpc":"2.0","method":"x","params":{"id":5,', b'"b":1,"id":5}}'),
            (b'{"result":"', b',\\"id\\":5}"}'),
            (b'{"result":[', b'{"id":5}]}'),
            (b'{"jsonrpc":"2.0","id":[5],', b"x"),
            (b"", b""),
            (b"log line", b"more of it"),
        ],
    )
    def test_an_id_of_something_else_is_not_taken_for_it(self, head: bytes, tail: bytes) -> None:
        assert jsonrpc.find_id(head, tail) == b"null"


class TestIsAnswer:
    @each_case(
        "head",
        [
            b'{"jsonrpc":"2.0","id":1,"result":',
            b'{"id":"a\\"","jsonrpc":"2.0","error" : ',
            b'{"result":{"method":"x"',
            b'{ "jsonrpc": "2.0", "result" : [',
            b'\xef\xbb\xbf {"error":',
        ],
    )
    def test_messages_with_a_result_or_an_error_are_responses(self, head: bytes) -> None:
        assert jsonrpc.starts_like_response(head)

    @each_case(
        "head",
        [
            b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"result":',
            b'{"method":"x","params":{"result":1}',
            b'{"id":1,"params":{"error":',
            b'[{"result":',
            b"",
            b'text "result": 1',
        ],
    )
    def test_requests_and_notifications_are_no_responses(self, head: bytes) -> None:
        assert not jsonrpc.starts_like_response(head)


class TestEncoding:
    @each_case("id", IDS)
    def test_every_envelope_is_one_line_of_json_that_reads_back(self, id: bytes) -> None:
        request = jsonrpc.request(id, 'odd "method"\n', b'{"a":1}')
        assert b"\n" not in request
        assert json.loads(request) == {
            "jsonrpc": "2.0",
            "id": json.loads(id),
            "method": 'odd "method"\n',
            "params": {"a": 1},
        }
        assert json.loads(jsonrpc.result(id, b"[1]")) == {
            "jsonrpc": "2.0",
            "id": json.loads(id),
            "result": [1],
        }
        assert text(read(jsonrpc.result(Raw(id), Raw(b"{}"))).id) == id

    def test_a_request_without_params_sends_empty_ones(self) -> None:
        assert json.loads(jsonrpc.request(b"1", "ping"))["params"] == {}

    def test_a_notification_without_params_has_none(self) -> None:
        assert json.loads(jsonrpc.notification("a/b")) == {"jsonrpc": "2.0", "method": "a/b"}
        assert json.loads(jsonrpc.notification("a/b", b"[]")) == {
            "jsonrpc": "2.0",
            "method": "a/b",
            "params": [],
        }

    def test_an_error_carries_data_only_where_given(self) -> None:
        assert json.loads(jsonrpc.error(b"1", -32601, "no")) == {
            "jsonrpc": "2.0",
            "id": 1,
            "error": {"code": -32601, "message": "no"},
        }
        assert json.loads(jsonrpc.error(b"1", 5, "no", b'{"a":[]}'))["error"]["data"] == {"a": []}

    def test_an_error_member_at_hand_is_passed_on_as_it_is(self) -> None:
        assert jsonrpc.error_body(b'"x"', Raw(b'{ "code": 1 }')).endswith(b'"id":"x","error":{ "code": 1 }}')


@each_case(
    ("answer", "code"),
    [
        ({"result": {}}, None),
        ({"result": None}, None),
        ({"result": {}, "error": None}, None),
        ({"result": None, "error": {"code": 5}}, 5),
        ({"result": {}, "error": {"code": 5}}, 5),
        ({"error": {"code": 5}}, 5),
        ({"error": None}, -32603),
        ({}, -32603),
    ],
)
def test_an_answer_is_an_error_where_it_has_one_or_no_result(
    answer: dict[str, object], code: int | None
) -> None:
    message = jsonrpc.parse(json.dumps({"jsonrpc": "2.0", "id": 1, **answer}).encode())
    assert isinstance(message, RpcMessage)
    error = jsonrpc.get_error(message)
    assert code == (None if error is None else jsonrpc.parse_error(error).code)


def test_bodies_are_the_same_however_they_are_written() -> None:
    assert jsonrpc.canonicalize(b'{"b" : 1, "a":"\\u00e9"}') == jsonrpc.canonicalize(
        '{"a":"é","b":1}'.encode()
    )
    assert jsonrpc.canonicalize(b'{"a":1}') != jsonrpc.canonicalize(b'{"a":"1"}')
    assert jsonrpc.canonicalize(b"{") == b"{"


def test_large_messages_are_not_repaired_character_by_character() -> None:
    half = rb"\ud800"
    small, large = (b'{"jsonrpc":"2.0","id":1,"result":"%b"}' % (half * count) for count in (10, 1 << 18))
    assert not isinstance(jsonrpc.parse(small), Malformed)
    assert isinstance(jsonrpc.parse(large), Malformed)
    broken = b'"\xff\xc3\xa9' + b"a" * (1 << 20) + b'"'
    assert jsonrpc.replace_invalid_utf8(broken) == b'"???' + b"a" * (1 << 20) + b'"'
