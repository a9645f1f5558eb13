"""What Go 1.19 makes of these templates, except where newer versions of Go do more."""

from __future__ import annotations

import pytest

from puna.gotemplate.errors import GoTemplateError
from puna.gotemplate.printing import to_json
from puna.gotemplate.template import GoTemplate

pytestmark = pytest.mark.unit

DATA = {
    "S": "hé<b>&",
    "E": "",
    "N": 3,
    "Z": 0,
    "F": 2.5,
    "T": True,
    "L": ["a", "b", "c"],
    "EL": [],
    "M": {"b": 1, "a": "x", "c": [1, {"q": None}]},
    "LL": [{"k": "v"}, {"k": "w"}],
    "Nil": None,
}


def rendered(source: str, data: object = DATA) -> str:
    return GoTemplate(source, {"json": to_json}).execute(data)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "{{ .S }}|{{ .N }}|{{ .F }}|{{ .T }}|{{ .L }}|{{ .M }}",
            "hé<b>&|3|2.5|true|[a b c]|map[a:x b:1 c:[1 map[q:<nil>]]]",
        ),
        ("{{ .Nil }}|{{ .Missing }}|{{ json .Missing }}", "<no value>|<no value>|null"),
        (
            "{{ 1e6 }}|{{ 100000.0 }}|{{ 1e-5 }}|{{ 0.0001 }}|{{ 123456789.5 }}",
            "1e+06|100000|1e-05|0.0001|1.234567895e+08",
        ),
        ("a {{- .N -}} b   {{- /* x */ -}}   c {{ .N -}}\n d", "a3bc 3d"),
        (
            '{{"q\\"\\n\\u00e9\\x41"}}{{`raw\\n`}}{{\'a\'}}{{0x1F}}{{-4}}{{1_000}}',
            'q"\néAraw\\n97 31-41000'.replace(" ", ""),
        ),
        ("{{\n .N\n}}{{(.N)}}{{.L|len}}", "333"),
        ('{{ if eq .S "x" }}a{{ else if .T }}b{{ else }}c{{ end }}', "b"),
        ("{{ with .E }}x{{ else }}y{{ end }}{{ with $q := .N }}{{ $q }}{{ . }}{{ $.N }}{{ end }}", "y333"),
        ("{{ range .L }}{{ . }}{{ else }}none{{ end }}{{ range .EL }}x{{ else }}none{{ end }}", "abcnone"),
        (
            "{{ range .Nil }}x{{ else }}none{{ end }}{{ range $k, $v := .M }}{{ $k }}={{ $v }};{{ end }}",
            "nonea=x;b=1;c=[1 map[q:<nil>]];",
        ),
        ("{{ range $i, $e := .L }}{{ if eq $i 1 }}{{ continue }}{{ end }}{{ $i }}{{ $e }}{{ end }}", "0a2c"),
        ('{{ range $e := .L }}{{ $e }}{{ if eq $e "b" }}{{ break }}{{ end }}{{ end }}', "ab"),
        ("{{ range 3 }}{{ . }}{{ end }}", "012"),
        ("{{ $x := 1 }}{{ range .L }}{{ $x = . }}{{ end }}{{ $x }}", "c"),
        ("{{ $x := 1 }}{{ range .L }}{{ $x := . }}{{ end }}{{ $x }}", "1"),
        (
            '{{ define "a" }}[{{ . }}{{ $ }}]{{ end }}{{ template "a" .N }}{{ template "a" }}',
            "[33][<no value><no value>]",
        ),
        ('{{ block "b" .L }}{{ len . }}{{ end }}', "3"),
        (
            "{{ and .N .S }}|{{ or .E .Z .S }}|{{ and .E .Missing.Foo }}|{{ or .N .Missing.Foo }}",
            "hé<b>&|hé<b>&||3",
        ),
        ("{{ not .E }}{{ not .L }}{{ not .Nil }}{{ not 0 }}", "truefalsetruetrue"),
        (
            '{{ eq .N 1 2 3 }}{{ ne .N 3 }}{{ lt .N 4 }}{{ le 3 .N }}{{ gt .F 2.0 }}{{ ge "b" "a" }}',
            "truefalsetruetruetruetrue",
        ),
        ('{{ eq .Missing "x" }}{{ eq .Missing nil }}', "falsetrue"),
        ("{{ len .S }}{{ len .L }}{{ len .M }}", "733"),
        (
            '{{ index .L 1 }}{{ index .M "a" }}{{ index .M "z" }}{{ index .LL 0 "k" }}{{ index "abc" 1 }}',
            "bx<no value>v98",
        ),
        ('{{ slice .L 1 }}{{ slice .L 1 2 }}{{ slice "abc" 0 2 }}{{ slice .L }}', "[b c][b]ab[a b c]"),
        ('{{ print 1 2 "a" 3 4 }}{{ println "a" 1 }}', "1 2a3 4a 1\n"),
        (
            '{{ printf "%d %s %v %q %5d|%-5s|%05d" .N .S .L "a\\"" 7 "ab" 42 }}'
            '{{ printf "|%.2f|%x|%t|%c|%%" 3.14159 255 true 65 }}',
            '3 hé<b>& [a b c] "a\\""     7|ab   |00042|3.14|ff|true|A|%',
        ),
        (
            '{{ printf "%s" .N }}{{ printf "%d" (slice .L 2) }}{{ printf "%s" }}{{ printf "x" 1 "y" }}'
            '{{ printf "%s" .Nil }}',
            "%!s(int=3)[%!d(string=c)]%!s(MISSING)x%!(EXTRA int=1, string=y)%!s(<nil>)",
        ),
        ('{{ len (printf "a%*s" .N "") }}', "4"),
        ('{{ html .S }}{{ js .S }}{{ urlquery "a b&c" }}', "hé&lt;b&gt;&amp;hé\\u003Cb\\u003E\\u0026a+b%26c"),
        ('{{ .N | printf "%d-%d" 1 }}{{ "x" | printf "%s%s" "y" | len }}{{ .Missing | or "z" }}', "1-32z"),
        ("{{ (index .LL 1).k }}{{ .M.c | json }}{{ json .S }}", 'w[1,{"q":null}]"hé\\u003cb\\u003e\\u0026"'),
        ("{{ json 2.0 }}{{ json .F }}{{ json .M }}", '22.5{"a":"x","b":1,"c":[1,{"q":null}]}'),
        ("{{ range $i, $_ := .L }}{{ if eq (len (slice $.L $i)) 1 }}last{{ end }}{{ end }}", "last"),
    ],
)
def test_writes(source: str, text: str):
    assert rendered(source) == text


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("{{ if .T }}x", "unexpected end"),
        ("{{ else }}", "unexpected"),
        ("{{ if }}x{{ end }}", "missing value"),
        ("{{ .N", "unclosed action"),
        ('{{ "x }}', "in action"),
        ("{{/* x }}", "unclosed comment"),
        ("{{ a.b }}", 'function "a" not defined'),
        ("{{ $u }}", "undefined variable"),
        ("{{ if .T }}{{ $y := 5 }}{{ end }}{{ $y }}", "undefined variable"),
        ("{{ range .L }}{{ end }}{{ break }}", "outside"),
        ("{{ 1 | 2 }}", "no function"),
        ('{{ if .T }}{{ define "q" }}{{ end }}{{ end }}', "unexpected"),
        ("{{ nil }}", "nil is not a command"),
        ("{{ .N 3 }}", "non-function"),
        ("{{ .N | .S }}", "non-function"),
        ("{{ eq .S .N }}", "incompatible types"),
        ("{{ eq .L .L }}", "uncomparable"),
        ("{{ lt .N 1.5 }}", "incompatible types"),
        ("{{ len .N }}", "len of type int"),
        ("{{ index .L 9 }}", "out of range"),
        ("{{ slice .L 2 1 }}", "invalid slice index"),
        ("{{ .S.Foo }}", "can't evaluate field Foo"),
        ("{{ .Nil.Foo }}", "nil pointer"),
        ("{{ range .S }}{{ end }}", "can't iterate"),
        ('{{ template "nope" . }}', "not defined"),
        ("{{ not 1 2 }}", "wrong arguments for not"),
        ("{{ and }}", "at least 1"),
        ('{{ define "t" }}{{ template "t" . }}{{ end }}{{ template "t" . }}', "without end"),
        ("{{ if .T }}" * 2000 + "{{ end }}" * 2000, "too deeply nested"),
        ("{{ " + "(" * 5000 + ".N" + ")" * 5000 + " }}", "too deeply nested"),
    ],
)
def test_refuses(source: str, error: str):
    with pytest.raises(GoTemplateError, match=error):
        rendered(source)


def test_errors_know_their_line():
    with pytest.raises(GoTemplateError) as parsing:
        rendered("a\n{{ range .L }}\n{{ $u }}{{ end }}")
    with pytest.raises(GoTemplateError) as running:
        rendered("a\n{{ range .L }}\n{{ index . 7 }}{{ end }}")
    assert (parsing.value.line, running.value.line) == (3, 3)
