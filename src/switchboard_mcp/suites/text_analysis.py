"""Splits texts and tool names into words, and provides stemming, stop words, abbreviations and synonyms.

The language is English; common words of five other languages are translated, accents do not matter, and scripts without
spaces are split into pairs of characters. Not aware of what is searched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

# Plurals such as `URLs`, runs of capitals, capitalised or small words, numbers, and runs of any other letters.
WORD = r"[A-Z]{2,}s(?![A-Za-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+"
# Latin letters with marks.
ACCENTED = re.compile("[\u00c0-\u024f]")
# Longer than any word; an unbroken text would be indexed piece by piece.
MAX_WORD_CHARS = 64
# Filler words of requests and sentences, which do not distinguish tools.
STOP_WORDS = frozenset(
    "a about again all also am an and any are as at be been being both but by can could did do does doing don each "
    "few finally for from further give had has have he help her here him his how i if im in into is it its just know "
    "let like me more most my need no nor not now of off on once one only or other our out over own please same she "
    "should since so some such tell than that the their them then there these they this those three to today tomorrow "
    "too two under until up us use used using very via want was we what when where which while who whom why will with "
    "would yesterday you your".split()
)
# The longest matching suffix is removed if at least `SHORTEST_STEM` letters remain; "->" gives its replacement.
SHORTEST_STEM = 4
ENDINGS = tuple(
    tuple(rule.partition("->")[::2])
    for rule in (
        "ization->ize isation->ize ational->ate fulness iveness ically->ic ation->at ator->at ment ness able ible ance "
        "ence ical->ic ally ial ful ive ity ize ise ing ion er or ed al ly"
    ).split()
)
# Each line: words that tools and users use for nearly the same thing.
SYNONYMS = """
create make add new generate build produce
delete remove erase drop clear
get fetch retrieve read obtain load show view
search find lookup query discover locate
list enumerate browse
update edit modify change set alter
send post publish submit share
save write store export
run execute launch start invoke
stop end kill terminate cancel
convert transform translate
calculate compute count
analyze analyse examine inspect evaluate
summarize summary abstract digest
recommend suggest
compare diff difference
ask question
picture image photo screenshot
presentation ppt powerpoint pptx slide
document doc docx word
spreadsheet excel xlsx sheet
folder directory
website site webpage page web
repository repo
issue ticket bug
version release
database db sql
user account profile
email mail message
price cost quote
stock share equity ticker
currency exchange money
company firm
news headline
paper article publication
book novel
trend popular hot rank
weather forecast temperature
map location place address
route direction navigation
hotel accommodation lodging
train railway
flight airline
calendar date day
time clock hour
chart graph plot diagram
movie film
video clip
music audio song sound
recipe dish meal cook food
download fetch
undo revert reset rollback
latest last recent newest
altitude elevation height
appointment meeting event
fail failure error
speech voice speak aloud
finish complete close done
sms text message
"""

# Has a digit, so it would be split.
KUBERNETES = re.compile("k8s", re.IGNORECASE)
# Each line: two words of a query that stand for others together.
PHRASES = """
what time: current time
how far: distance
how much: price cost
how many: count
how long: duration
how hot: temperature
how cold: temperature
how high: height elevation
go to: navigate
file a: create
file an: create
money back: refund
near me: nearby around
read aloud: speech
log in: login
sign in: login
look up: search
work out: calculate
"""
# Each line: what people write, and the words that tools use for it.
ABBREVIATIONS = """
pr: pull request
prs: pull request
mr: merge request
mrs: merge request
repo: repository
repos: repository
db: database
gh: github
gcal: google calendar
gdrive: google drive
gdoc: google doc
gdocs: google doc
gsheet: google sheet
gsheets: google sheet
hn: hacker news
yt: youtube
wiki: wikipedia
dm: direct message
dms: direct message
msg: message
msgs: message
pic: image
pics: image
img: image
imgs: image
tz: timezone
env: environment
cfg: config
dir: directory
dirs: directory
ls: list directory
grep: search text
auth: authentication
perms: permission
calc: calculate
vid: video
vids: video
addr: address
tel: phone
pw: password
vm: virtual machine
vms: virtual machine
ci: workflow run
fx: exchange rate
eta: arrival time
mtg: meeting
appt: appointment
doc: document
docs: document
info: information
bday: birthday
"""
# Each line: the English word, and its German, French, Spanish, Portuguese and Italian forms, without accents.
TRANSLATIONS = """
weather: wetter meteo clima
time: uhrzeit heure hora ora
search: suche suchen finde finden chercher recherche rechercher trouver buscar busca encontrar cercare cerca trovare
file: datei dateien fichier fichiers archivo archivos arquivo arquivos
folder: ordner verzeichnis dossier repertoire carpeta pasta cartella
create: erstelle erstellen anlegen creer cree crear crea criar creare
delete: losche loschen entfernen supprimer supprime borrar borra eliminar apagar eliminare cancella
read: lese lesen lire leer ler leggere leggi
write: schreibe schreiben ecrire ecris escribir escribe escrever scrivere scrivi
send: sende senden schicke schicken envoyer envoie enviar envia inviare invia
show: zeige zeigen afficher affiche montrer montre mostrar muestra mostrare mostra
list: liste lister listar lista elenca elencare
open: offne offnen ouvrir ouvre abrir abre aprire apri
update: aktualisiere aktualisieren mettre actualizar actualiza atualizar aggiornare aggiorna
translate: ubersetze ubersetzen traduire traduis traducir traduce traduzir tradurre traduci
calculate: berechne berechnen rechne calculer calcule calcular calcula calcolare calcola
message: nachricht nachrichten mensaje mensajes mensagem mensagens messaggio messaggi
mail: mails courriel correo
image: bild bilder imagen imagenes imagem imagens immagine immagini
map: karte carte mapa mappa
route: strecke itineraire ruta rota percorso
news: neuigkeiten nouvelles actualites noticias notizie
price: preis preise prix precio precios preco prezzo
stock: aktie aktien bourse acciones acoes azioni
calendar: kalender calendrier calendario
event: termin termine evenement evento
database: datenbank donnees datos dados
table: tabelle tableau tabla tabela tabella
user: benutzer nutzer utilisateur usuario utente
page: seite seiten pagina
website: webseite site sitio
flight: flug fluge vol vuelo voo volo
train: zug zuge tren trem treno
book: buch bucher livre livres libro libros livro
summarize: zusammenfassen zusammenfassung resumer resume resumir resumen riassumere
download: herunterladen telecharger descargar baixar scaricare
"""
# The word after one of these does not count: "list the files, do not delete them".
NEGATIONS = frozenset("not don dont doesn without never except".split())
UNWANTED = STOP_WORDS | NEGATIONS


def words(text: str) -> list[str]:
    """Return the words of a text or of a camelCase, snake_case or kebab-case name, in lower case.

    Scripts without spaces yield pairs of adjacent characters.
    """
    terms: list[str] = []
    if not text.isascii():
        text = ACCENTED.sub(_without_marks, text)
    text = KUBERNETES.sub(" kubernetes ", text)
    for run in re.findall(WORD, text):
        if run[0] < "\u2e80" or len(run) < 2:
            terms.append(run[:MAX_WORD_CHARS].lower())
        else:
            terms.extend(run[place : place + 2] for place in range(len(run) - 1))
    return terms


def stem(word: str) -> str:
    """Return the word without common English suffixes: `creates`, `creating` and `creation` have the same stem."""
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word[-1] == "s" and word[-2] not in "sui":
        word = word[:-1]
    for ending, instead in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= SHORTEST_STEM:
            word = word[: -len(ending)] + instead
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    if word[-1] == "e" and len(word) > 3:
        return word[:-1]
    return word[:-1] + "i" if word[-1] == "y" and len(word) > SHORTEST_STEM else word


def meaningful(text: str) -> list[str]:
    """Return the words that are not stop words; all of them if there are no others."""
    all_words = words(text)
    return [word for word in all_words if word not in STOP_WORDS] or all_words


def wanted_words(query: str) -> list[str]:
    """Return the words that a query looks for: translated, with abbreviations written out, without negated ones."""
    wanted: list[str] = []
    negated = False
    queue = words(query)[::-1]
    while queue:
        word = queue.pop()
        phrase = meanings().get(f"{word} {queue[-1]}") if queue else None
        if phrase:
            queue.pop()
        elif word in NEGATIONS:
            negated = True
        if phrase or word not in UNWANTED:
            if not negated:
                wanted += phrase or (word, *meanings().get(word, ()))
            negated = False
    return wanted or meaningful(query)


@cache
def meanings() -> Mapping[str, tuple[str, ...]]:
    """Return the words that a phrase, an abbreviation or a foreign word stands for. Computed on first use."""
    by_word = {}
    for line in filter(None, (PHRASES + ABBREVIATIONS).split("\n")):
        short, _, whole = line.partition(": ")
        by_word[short] = tuple(whole.split())
    for line in filter(None, TRANSLATIONS.split("\n")):
        english, _, foreign = line.partition(": ")
        by_word.update((word, (english,)) for word in foreign.split())
    return by_word


def _without_marks(match: re.Match[str]) -> str:
    """Return a letter without its marks: `e` for `é`."""
    from unicodedata import normalize  # a large table, and most texts have no marks

    return normalize("NFKD", match.group())[0]


@cache
def synonyms() -> Mapping[str, frozenset[str]]:
    """Return the synonyms of each stem. Computed on first use."""
    related: dict[str, set[str]] = {}
    for line in SYNONYMS.split("\n"):
        stems = {stem(word) for word in line.split()}
        for term in stems:
            related.setdefault(term, set()).update(stems - {term})
    return {term: frozenset(others) for term, others in related.items()}
