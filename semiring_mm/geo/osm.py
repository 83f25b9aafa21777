"""OpenStreetMap files (.osm.pbf, .osm, .osm.bz2) as street networks: profiles, cuts, restrictions.

The reader is osmium (pyosmium): of the kept ones it alone has the nodes of ways, the tags of nodes
and the relations that a network needs, and a wheel of 2 MB for every Python and system. Its C++
writes what is wanted to two temporary files in a single pass over the map, and what Python does is
a look at the tags of a way, once for each combination of them: 5 µs a way in all. pyrosm 0.25 takes
50 µs for the same ways and cuts none of them, QuackOSM gives geometries without their nodes.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph_kernels import Index, offsets, ranges
from ..naming import optional
from ..storage import one_line
from ..warn import warn
from .streets import Streets, lengths

__all__ = ["PROFILES", "SUFFIXES", "OsmStreets", "Profile", "read_osm"]

Float = NDArray[np.float64]
Tags = Mapping[str, str]

#: Of names of files that are maps of OpenStreetMap.
SUFFIXES = ".pbf", ".osm", ".osm.bz2", ".osm.gz", ".opl"
_CRS = "EPSG:4326"


def _row(text: str) -> dict[str, float]:
    """Speeds by kinds of roads: "100 motorway, 40 residential living_street"."""
    groups = (group.split() for group in text.split(","))
    return {kind: float(speed) for speed, *kinds in groups for kind in kinds}


@dataclass(frozen=True)
class Profile:
    """Profile of travellers for OpenStreetMap's tags: where they may go, and how fast.

    Change one by ``dataclasses.replace(PROFILES["cycling"], speeds=...)``.

    Parameters
    ----------
    name : str
    speeds : mapping of str to float
        Kilometres an hour by the word of ``highway``, "ferry" among them.
    opened : mapping of str to float
        The same, where only a tag of the traveller's own, such as ``bicycle=yes``, opens the way.
    access : tuple of str
        Keys that open or close a way or a barrier, each overruled by the next.
    oneway : tuple of str
        The same of ``oneway``; empty where that is obeyed by others alone.
    limits : {"exact", "at most", "no"}
        Whether ``maxspeed`` is the speed, bounds it, or is of no matter.
    stops : frozenset of str
        Words of ``barrier`` that stop the traveller at a node, if no access tag opens it.
    restriction : tuple of str
        Keys of turn restrictions that are obeyed.
    """

    name: str
    speeds: Mapping[str, float]
    opened: Mapping[str, float]
    access: tuple[str, ...]
    oneway: tuple[str, ...]
    limits: str
    stops: frozenset[str]
    restriction: tuple[str, ...]


_ALL_STOP = """fence wall hedge guard_rail city_wall retaining_wall ditch debris log block
    jersey_barrier full-height_turnstile"""
_CARS_STOP = """bollard chain cycle_barrier motorcycle_barrier stile turnstile kissing_gate
    horse_stile planter rope bus_trap sump_buster hampshire_gate bar barrier_board rising_bollard"""
_BIKES_STOP = "stile turnstile kissing_gate horse_stile"
_NO_STOP = """gate lift_gate swing_gate sliding_gate cattle_grid toll_booth border_control entrance
    height_restrictor width_restrictor sally_port kerb yes no spikes arch checkpoint wicket_gate
    coupure tank_trap"""

#: Profiles by name. Speeds without a limit are those of OSRM's profiles, rounded.
PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            "driving",
            _row("""90 motorway, 85 trunk, 65 primary, 55 secondary, 45 motorway_link, 40 tertiary
                trunk_link, 30 primary_link, 25 secondary_link unclassified residential road,
                20 tertiary_link, 15 service, 10 living_street"""),
            _row("15 track ferry, 10 pedestrian path bridleway cycleway footway busway"),
            ("access", "vehicle", "motor_vehicle", "motorcar"),
            ("oneway", "oneway:motor_vehicle", "oneway:motorcar"), "exact",
            frozenset(f"{_ALL_STOP} {_CARS_STOP}".split()),
            ("restriction", "restriction:motor_vehicle", "restriction:motorcar"),
        ),
        Profile(
            "cycling",
            _row("""15 cycleway primary primary_link secondary secondary_link tertiary tertiary_link
                unclassified residential living_street road service ferry, 12 track path"""),
            _row("15 trunk trunk_link busway, 8 footway pedestrian bridleway, 2 steps"),
            ("access", "vehicle", "bicycle"), ("oneway", "oneway:bicycle"), "at most",
            frozenset(f"{_ALL_STOP} {_BIKES_STOP}".split()),
            ("restriction", "restriction:bicycle"),
        ),
        Profile(
            "walking",
            _row("""5 primary primary_link secondary secondary_link tertiary tertiary_link
                unclassified residential living_street road service track path footway pedestrian
                bridleway corridor platform, 3 steps, 15 ferry"""),
            _row("5 cycleway trunk trunk_link busway bus_guideway, 2 via_ferrata"),
            ("access", "foot"), ("oneway:foot",), "no", frozenset(_ALL_STOP.split()), (),
        ),
    )
}  # fmt: skip

_CLOSED = """proposed construction planned abandoned disused razed dismantled demolished removed
    raceway bus_guideway escape elevator ladder rest_area services emergency_bay
    emergency_access_point bus_stop traffic_island no"""
_KNOWN = set(_CLOSED.split()).union(*(x.speeds.keys() | x.opened for x in PROFILES.values()))
_PASSED = set(f"{_ALL_STOP} {_CARS_STOP} {_NO_STOP}".split())
_YES = set("yes designated permissive official destination customers delivery public".split())
_NO = set(
    """no private agricultural forestry agricultural;forestry military emergency psv bus taxi hov
    permit restricted use_sidepath dismount residents employees staff""".split()
)
_ONEWAY = {
    **dict.fromkeys(("yes", "1", "true"), (True, False)),
    **dict.fromkeys(("no", "0", "false", "alternating"), (True, True)),
    **dict.fromkeys(("-1", "reverse"), (False, True)),
    "reversible": (False, False),  # which way is open when, the map does not say
}
_AGAINST = {"opposite", "opposite_lane", "opposite_track"}
#: Limits without a number, and by what kind of road of a country they are: OSRM's table.
_WORDS = {"walk": 5.0, "none": 130.0}
_UNITS = {"km/h": 1.0, "kmh": 1.0, "kph": 1.0, "mph": 1.609344, "knots": 1.852}
_ZONES = {
    "living_street": 10.0, "bicycle_road": 30.0, "urban": 50.0, "rural": 90.0, "trunk": 110.0,
    "motorway": 130.0, "nsl_single": 60 * 1.609344, "nsl_dual": 70 * 1.609344,
}  # fmt: skip
_COUNTRIES = {
    "AT:rural": 100.0, "AT:trunk": 100.0, "BE:motorway": 120.0, "BY:urban": 60.0,
    "BY:motorway": 110.0, "CH:rural": 80.0, "CH:trunk": 100.0, "CH:motorway": 120.0,
    "CZ:trunk": 110.0, "DE:rural": 100.0, "DE:living_street": 7.0, "DK:rural": 80.0,
    "FR:rural": 80.0, "GB:motorway": 70 * 1.609344, "UK:motorway": 70 * 1.609344, "NL:rural": 80.0,
    "NL:trunk": 100.0, "NO:rural": 80.0, "NO:motorway": 110.0, "PL:motorway": 140.0,
    "RO:trunk": 100.0, "RU:living_street": 20.0, "RU:urban": 60.0, "RU:motorway": 110.0,
    "ZA:urban": 60.0, "ZA:rural": 100.0,
}  # fmt: skip
_TYPES = "maxspeed:type", "source:maxspeed", "zone:maxspeed"
_WAY_KEYS = (
    *"highway route junction area duration cycleway".split(),
    *("maxspeed", "maxspeed:forward", "maxspeed:backward", *_TYPES),
)
_HOURS = "hour_on", "hour_off", "day_on", "day_off"  # of a restriction
_BLOCK = 200_000  # ways whose nodes are words at a time
_RECORD = np.dtype([("id", "<i8"), ("x", "<i4"), ("y", "<i4")])  # of osmium's index in a file


@dataclass(frozen=True, repr=False, eq=False)
class OsmStreets(Streets):
    """Street network of an OpenStreetMap file, with its turn restrictions.

    Parameters
    ----------
    nodes, x, y, crs, u, v, columns, shape
        As of :class:`Streets`.
    bans : (k, l) int64
        What is forbidden: the positions of edges that may not be taken one after the other, two of
        a turn or, as by a restriction via a way, more; with -1 after the last of each row.
    """

    bans: Index = field(default_factory=lambda: np.empty((0, 2), np.int64))

    @classmethod
    def of(cls, streets: Streets, bans: Index) -> OsmStreets:
        """Streets with turn restrictions.

        Parameters
        ----------
        streets : Streets
        bans : (k, l) int64
            As of the class.
        """
        own: dict[str, Any] = {x.name: getattr(streets, x.name) for x in fields(Streets)}
        return cls(**own, bans=bans)

    def taken(self, edges: Index, *, backward: NDArray[np.bool_] | None = None) -> OsmStreets:
        """Some edges, as of :class:`Streets`, and the restrictions between those not turned.

        Parameters
        ----------
        edges, backward
            As for :meth:`Streets.taken`.

        Returns
        -------
        OsmStreets
        """
        place = np.full(len(self.u) + 1, -2)
        place[edges] = np.arange(len(edges))
        if backward is not None:
            place[edges[backward]] = -2
        place[-1] = -1  # after the last edge
        bans = place[self.bans]
        kept = (bans > -2).all(axis=1)
        return OsmStreets.of(super().taken(edges, backward=backward), bans[kept])


def read_osm(
    path: str | os.PathLike[str], profile: str | Profile = "driving", *, geometry: bool = True
) -> OsmStreets:
    """Streets of an OpenStreetMap file that a driver, cyclist or pedestrian may use.

    Ways are cut where they meet each other or themselves, and at barriers that stop the traveller,
    whose node becomes a dead end of each of the streets there.

    Parameters
    ----------
    path : path
        A file that osmium reads: ``.osm.pbf``, ``.osm``, ``.osm.bz2``, ``.opl``, ...
    profile : {"driving", "cycling", "walking"} or Profile
    geometry : bool, default True
        Whether to keep the points between crossings.

    Returns
    -------
    OsmStreets
        In degrees (EPSG:4326). Nodes are labelled by OpenStreetMap's ids, further dead ends at the
        node of a barrier by -id, -id - 10¹², ... Columns are ``length`` in metres along great
        circles, ``travel_time`` in seconds, ``speed_kph``, ``highway``, ``oneway``, ``osmid`` of
        the way, and ``key``, which tells edges between the same nodes apart.

    Raises
    ------
    ImportError
        Without osmium.
    FileNotFoundError
        If there is no such file.
    ValueError
        If osmium cannot read it, no way in it is open to the profile, or there is no such profile.

    Warns
    -----
    UserWarning
        One, of all words of tags that are unknown, of restrictions that are not obeyed (such as
        those at some hours), and of nodes that the file lacks, with how often.

    Notes
    -----
    ``access=destination``, ``customers`` and ``delivery`` count as open, ``private`` as closed,
    ``oneway=reversible`` as closed both ways; ``...:conditional`` is not read. Who comes by the way
    from of an ``only_...`` via ways, and takes the first of these, has to follow them. Squares
    (``area=yes``) are left out. Ferries take the time of ``duration``, others the speed of the
    profile; cars take those that say so. Memory: about 60 bytes a node of the ways that are kept,
    and as much again for the geometry of each direction; on disk, until it returns, 16 bytes for
    each node of the file and about 150 for each way.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from semiring_mm.geo import read_osm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "map.opl")
    >>> _ = path.write_text('''n1 x10 y50
    ... n2 x10.01 y50
    ... n3 x10.02 y50
    ... n4 x10.01 y50.01
    ... w7 Thighway=residential Nn1,n2,n3
    ... w8 Thighway=primary,oneway=yes,maxspeed=60 Nn2,n4
    ... ''')
    >>> streets = read_osm(path)
    >>> streets
    <Streets: 4 nodes, 5 directed edges, WGS 84>
    >>> streets.edge_id(4), streets.columns["travel_time"][4].round(2)
    ((2, 4, 0), np.float64(66.72))
    """
    if isinstance(profile, str) and profile not in PROFILES:
        known = ", ".join(map(repr, PROFILES))
        raise ValueError(f"profile is one of {known}, or a Profile, got {profile!r}")
    who = PROFILES[profile] if isinstance(profile, str) else profile
    name = os.fspath(path)
    with tempfile.TemporaryDirectory() as folder:
        text, places = Path(folder, "text.opl"), Path(folder, "places")
        _extract(name, text, places)
        told: Counter[str] = Counter()
        ways = _Ways(who, text, told)
        if not ways.ids.size:
            _tell(name, told)
            raise ValueError(f"{name!r} has no way that is open to {who.name}")
        streets = ways.streets(places, geometry)
    bans = _bans(streets, ways.restrictions, who, told)
    _tell(name, told)
    return OsmStreets.of(streets, bans)


def _extract(name: str, text: Path, places: Path) -> None:
    """Write what is of matter as lines of text, and the places of all nodes as records."""
    osmium = optional("osmium", "osmium reads maps of OpenStreetMap", "osm")
    if not os.path.isfile(name):
        raise FileNotFoundError(f"there is no file {name!r}")
    bits = osmium.osm.osm_entity_bits
    wanted = {
        bits.NODE: osmium.filter.KeyFilter("barrier"),
        bits.WAY: osmium.filter.KeyFilter("highway", "route"),
        bits.RELATION: osmium.filter.TagFilter(("type", "restriction")),
    }
    for kind, chosen in wanted.items():
        chosen.enable_for(kind)
    table = osmium.index.create_map(f"sparse_file_array,{places}")
    keep = osmium.NodeLocationsForWays(table)
    keep.apply_nodes_to_ways = False
    try:
        lines = osmium.io.File(str(text), "opl,add_metadata=false")
        with osmium.SimpleWriter(lines, overwrite=True) as out:
            reader = osmium.io.Reader(name, bits.NODE | bits.WAY | bits.RELATION)
            osmium.apply(reader, keep, *wanted.values(), out)
            reader.close()
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"osmium does not read {name!r}: {one_line(error)}") from None


def _tell(name: str, told: Counter[str]) -> None:
    """One warning of all that was not understood."""
    if told:
        most = [f"{text} ({count:,} ×)" for text, count in told.most_common(12)]
        rest = [f"and {len(told) - 12:,} more"] if len(told) > 12 else []
        warn(f"{name!r}: " + "; ".join(most + rest))


def _plain(text: str) -> str:
    """A word without the escapes of OPL."""
    return re.sub(r"%([0-9a-f]+)%", lambda x: chr(int(x[1], 16)), text)


# Tags


@dataclass(frozen=True)
class _Rule:
    """What the tags of a way say: km/h each way (0: closed), and what they say that is unknown."""

    kind: str = ""
    forward: float = 0.0
    backward: float = 0.0
    seconds: float = 0.0  # from end to end, of some ferries
    told: tuple[str, ...] = ()


def _opened(who: Profile, tags: Tags, told: list[str]) -> tuple[bool | None, bool]:
    """Whether access tags open or close it (None: neither), and if that is by one of its own."""
    for key in reversed(who.access):
        word = tags.get(key)
        if word in _YES or word in _NO:
            return word in _YES, key != "access"
        if word is not None:
            told.append(f"{key}={word} is unknown and has no effect")
    return None, False


def _limit(word: str) -> float | None:
    """A speed limit in km/h; of several the least; None: not understood."""
    if ";" in word:
        several = [_limit(x.strip()) for x in word.split(";")]
        return None if None in several else min(x for x in several if x is not None)
    number = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-z/]*)", word)
    if number is not None:
        unit = _UNITS.get(number[2] or "km/h")
        return float(number[1]) * unit if unit and float(number[1]) else None
    zone = re.fullmatch(r"([A-Z]{2})(?:-[A-Z]+)?:(?:zone:?)?(\w+)", word)
    if zone is None:
        return _WORDS.get(word)
    if zone[2].isdecimal():
        return float(zone[2]) or None
    return _COUNTRIES.get(f"{zone[1]}:{zone[2]}", _ZONES.get(zone[2]))


def _duration(word: str) -> float:
    """Seconds of a duration: "45", "1:30", "00:20:00", "PT1H30M"; 0: not understood."""
    clock = re.fullmatch(r"(?:(\d+):)?(\d+)(?::(\d+))?", word)
    if clock is not None:
        hours, minutes, seconds = (int(x or 0) for x in clock.groups())
        return 3600.0 * hours + 60.0 * minutes + seconds
    iso = re.fullmatch(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?", word)
    hours, minutes, seconds = (int(x or 0) for x in iso.groups()) if iso else (0, 0, 0)
    return 3600.0 * hours + 60.0 * minutes + seconds


def _directions(who: Profile, tags: Tags, told: list[str]) -> tuple[bool, bool]:
    """Whether a way is open along its nodes, and against them."""
    if "oneway" in who.oneway and "bicycle" in who.access and tags.get("cycleway") in _AGAINST:
        return True, True
    for key in reversed(who.oneway):
        word = tags.get(key)
        if word in _ONEWAY:
            return _ONEWAY[word]
        if word is not None:
            told.append(f"{key}={word} is unknown and has no effect")
    ring = tags.get("junction") in ("roundabout", "circular")
    implied = "oneway" in who.oneway and (ring or tags.get("highway") == "motorway")
    return True, not implied


def _rule(who: Profile, tags: Tags) -> _Rule:
    """What the tags of a way say to a traveller."""
    told: list[str] = []
    ferry = "highway" not in tags and tags.get("route") in ("ferry", "shuttle_train")
    kind = "ferry" if ferry else tags.get("highway", "")
    if not kind or tags.get("area") == "yes":
        return _Rule()
    if kind not in who.speeds and kind not in who.opened:
        unknown = kind not in _KNOWN
        return _Rule(told=(f"highway={kind} is unknown and left out",) * unknown)
    answer, own = _opened(who, tags, told)
    if answer is False or (kind not in who.speeds and not (answer and own)):
        return _Rule(told=tuple(told))
    speed = who.speeds.get(kind, who.opened.get(kind, 0.0))
    seconds = 0.0
    if ferry and "duration" in tags:
        seconds = _duration(tags["duration"])
        if not seconds:
            told.append(f"duration={tags['duration']} is unknown: {speed:g} km/h")
    both = _directions(who, tags, told)
    kph = [speed * is_open for is_open in both]
    for i, way in enumerate(("forward", "backward")):
        if who.limits == "no" or ferry or not both[i]:
            continue
        for k, key in enumerate((f"maxspeed:{way}", "maxspeed", *_TYPES)):
            limit = _limit(tags[key]) if key in tags else None
            if limit is not None:
                kph[i] = limit if who.limits == "exact" else min(speed, limit)
                break
            # variable limits are no numbers, and types of limits may be other words
            if key in tags and k < 2 and tags[key] not in ("signals", "variable"):
                told.append(f"{key}={tags[key]} is unknown: the speed of the kind of road")
    return _Rule(kind, kph[0], kph[1], seconds, tuple(dict.fromkeys(told)))


def _stops(who: Profile, tags: Tags, told: Counter[str]) -> bool:
    """Whether a barrier stops a traveller."""
    words: list[str] = []
    answer, _ = _opened(who, tags, words)
    kind = tags["barrier"]
    if answer is None and kind not in who.stops and kind not in _PASSED:
        words.append(f"barrier={kind} is unknown and has no effect")
    told.update(words)
    return kind in who.stops if answer is None else not answer


# Ways


class _Ways:
    """The ways that a profile uses, their nodes, what stops it, and the restrictions.

    Attributes
    ----------
    ids, code : (w,) int64
        Of each way, and which rule it follows.
    first : (w + 1,) int64
    refs : (first[-1],) int64
        Ids of the nodes of each way.
    """

    def __init__(self, who: Profile, text: Path, told: Counter[str]) -> None:
        keys = "|".join({*_WAY_KEYS, *who.access, *who.oneway})
        find = re.compile(f"[T,]({keys})=([^,]*)").findall
        self.rules: list[_Rule] = []
        self.restrictions: list[tuple[dict[str, str], str]] = []
        known: dict[tuple[tuple[str, str], ...], int] = {}
        met: Counter[int] = Counter()
        numbers: list[str] = []
        code: list[int] = []
        words: list[str] = []
        parts: list[tuple[Index, Index, Index]] = []
        stops: list[int] = []

        def flush() -> None:
            sizes = np.array([x.count(",") + 1 for x in words], np.int64)
            parts.append((_numbers(",".join(numbers)), sizes, _numbers(",".join(words))))
            numbers.clear()
            words.clear()

        with open(text, encoding="utf-8") as lines:
            for line in lines:
                head, tags, *rest = line.split(" ")
                if head[0] == "w":
                    found = tuple(find(tags))
                    number = known.get(found)
                    if number is None:
                        number = known[found] = len(self.rules)
                        self.rules.append(_rule(who, {k: _plain(x) for k, x in found}))
                    met[number] += 1
                    rule = self.rules[number]
                    if (rule.forward or rule.backward) and "," in rest[0]:
                        numbers.append(head[1:])
                        code.append(number)
                        words.append(rest[0].rstrip()[1:])
                        if len(numbers) == _BLOCK:
                            flush()
                elif head[0] == "n":
                    if _stops(who, _tags(tags), told):
                        stops.append(int(head[1:]))
                else:
                    self.restrictions.append((_tags(tags), rest[0].rstrip()[1:]))
        flush()
        for number, times in met.items():
            told.update(dict.fromkeys(self.rules[number].told, times))
        self.told = told
        self.ids, count, self.refs = map(np.concatenate, zip(*parts, strict=True))
        self.code, self.first = np.array(code, np.int64), offsets(count)
        self.stops = np.array(stops, np.int64)

    def streets(self, places: Path, geometry: bool) -> Streets:
        """The ways, cut."""
        node, at = np.unique(self.refs, return_inverse=True)
        if node[0] <= 0:
            raise ValueError(
                f"ids of nodes are positive, got {node[0]}: an editor has added it, and not yet "
                f"uploaded it; osmium renumber gives new ids"
            )
        xy = _places(places, node)
        way = np.repeat(np.arange(len(self.ids)), np.diff(self.first))
        there = ~np.isnan(xy[at, 0])
        again = (at == np.roll(at, 1)) & (way == np.roll(way, 1))
        if lost := int(np.isnan(xy[:, 0]).sum()):
            self.told["nodes of ways are not in the file, and ways end before them"] += lost
        # pieces of ways whose nodes are all there
        before = np.concatenate([[False], there[:-1]])
        starts = (way != np.roll(way, 1)) | (there & ~before)
        starts[:1], again[:1] = True, False
        keep = there & ~again
        piece = np.cumsum(starts)[keep]
        at, way = at[keep], way[keep]
        stop = np.isin(node, self.stops)
        ends = np.ones(len(at), bool)
        ends[1:-1] = (piece[1:-1] != piece[:-2]) | (piece[1:-1] != piece[2:])
        cuts = np.flatnonzero(ends | stop[at] | (np.bincount(at, minlength=len(node)) > 1)[at])
        same = piece[cuts[:-1]] == piece[cuts[1:]]
        low, high = cuts[:-1][same], cuts[1:][same]  # where streets begin and end
        if not low.size:
            raise ValueError("no way has two nodes that are in the file")
        way = way[low]
        u, v, ids, xy_of = self._nodes(node, stop, at[low], at[high])
        count = high - low + 1
        first, points = offsets(count), xy[at[ranges(low, count)]]
        x, y = np.ascontiguousarray(xy[xy_of].T)
        del at, piece, keep, again, there, starts, before
        columns = self._columns(way, lengths(first, points, _CRS))
        shape = (first, points) if geometry else None
        # each street along its way, and then against it
        kph = np.stack([columns.pop("forward"), columns.pop("backward")], axis=1)
        seconds = columns["length"][:, None] / np.maximum(kph, 1e-9) * 3.6
        is_open = kph > 0
        columns["oneway"] = np.logical_not(is_open.all(axis=1))
        both = Streets(ids.tolist(), x, y, _CRS, u, v, columns, shape)
        taken, back = np.nonzero(is_open)
        found = both.taken(taken, backward=back == 1)
        columns = {
            **found.columns, "travel_time": seconds[is_open], "speed_kph": kph[is_open],
            "key": _keys(len(ids), found.u, found.v),
        }  # fmt: skip
        return Streets(found.nodes, x, y, _CRS, found.u, found.v, columns, found.shape)

    def _columns(self, way: Index, length: Float) -> dict[str, NDArray[Any]]:
        """Columns of streets from the rules of their ways."""
        code = self.code[way]
        kind = np.array([x.kind for x in self.rules], object)
        forward, backward, duration = (
            np.array([getattr(x, name) for x in self.rules])
            for name in ("forward", "backward", "seconds")
        )
        columns: dict[str, NDArray[Any]] = {
            "length": length, "osmid": self.ids[way], "highway": kind[code],
            "forward": forward[code], "backward": backward[code],
        }  # fmt: skip
        timed = duration[code] > 0
        if timed.any():
            whole = np.bincount(way, length, len(self.ids))[way[timed]]
            for name in ("forward", "backward"):
                speed = columns[name][timed]
                kph = whole / duration[code[timed]] * 3.6
                columns[name][timed] = np.where(speed > 0, kph, 0.0)
        return columns

    @staticmethod
    def _nodes(
        node: Index, stop: NDArray[np.bool_], u: Index, v: Index
    ) -> tuple[Index, Index, Index, Index]:
        """Ends of streets as numbers, the ids of these, and where each is in `node`.

        Each street has a node of its own where it ends at a barrier.
        """
        ends = np.concatenate([u, v])
        used, place = np.unique(ends, return_inverse=True)
        ids = node[used]
        closed = np.flatnonzero(stop[ends])
        closed = closed[np.argsort(place[closed], kind="stable")]
        which = place[closed]
        rank = np.arange(len(closed)) - np.searchsorted(which, which)
        more = rank > 0
        own = which[more]
        place[closed[more]] = len(used) + np.arange(len(own))
        ids = np.concatenate([ids, -ids[own] - (rank[more] - 1) * 10**12])
        return place[: len(u)], place[len(u) :], ids, np.concatenate([used, used[own]])


def _tags(text: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in text[1:].split(",") if pair)
    return {_plain(key): _plain(value) for key, _, value in pairs}


def _numbers(text: str) -> Index:
    """Numbers of a list such as "n12,n7"."""
    return np.fromstring(text.replace("n", ""), np.int64, sep=",")


def _places(path: Path, node: Index) -> Float:
    """Degrees of nodes, (n, 2), NaN of those that are not in the file; `node` is ascending."""
    xy = np.full((len(node), 2), np.nan)
    if not path.stat().st_size:
        return xy
    records = np.memmap(path, _RECORD, "r")
    for k in range(0, len(records), 1 << 22):
        part = records[k : k + (1 << 22)]
        part = part[(part["id"] > 0) & (part["x"] != np.iinfo(np.int32).max)]
        place = np.searchsorted(node, part["id"])
        place[place == len(node)] = 0
        found = node[place] == part["id"]
        for axis, name in enumerate("xy"):
            xy[place[found], axis] = part[name][found] / 1e7
    return xy


def _keys(n: int, u: Index, v: Index) -> Index:
    """Numbers 0, 1, ... of edges between the same nodes."""
    ends = u * n + v
    order = np.argsort(ends, kind="stable")
    ends = ends[order]
    new = np.concatenate([[True], ends[1:] != ends[:-1]])
    key = np.empty(len(u), np.int64)
    key[order] = np.arange(len(u)) - np.flatnonzero(new)[np.cumsum(new) - 1]
    return key


# Turn restrictions


@dataclass(frozen=True)
class _Restriction:
    """A restriction that is obeyed: an only_..., or a no_..., and the ids of its members."""

    only: bool
    starts: list[int]
    ends: list[int]
    node: int | None  # where it is; None: it is via ways
    via: tuple[int, ...] = ()  # these ways


def _bans(
    streets: Streets, relations: list[tuple[dict[str, str], str]], who: Profile, told: Counter[str]
) -> Index:
    """Edges that may not be taken one after the other, (k, l), with -1 after the last of each."""
    read = (_restriction(tags, members, who, told) for tags, members in relations)
    wanted = [x for x in read if x is not None]
    roads = _Roads(streets, wanted)
    banned: set[tuple[int, ...]] = set()
    for x in wanted:
        found = roads.at_node(x, told) if x.node is not None else roads.via_ways(x, told)
        if x.only:
            found = roads.others(found)
        banned.update(found)
    size = max(map(len, banned), default=2)
    rows = [(*ban, *[-1] * (size - len(ban))) for ban in sorted(banned)]
    return np.array(rows, np.int64).reshape(-1, size)


class _Roads:
    """The edges of the ways of restrictions, by ways and by nodes."""

    def __init__(self, streets: Streets, wanted: list[_Restriction]) -> None:
        ways = [way for x in wanted for way in (*x.starts, *x.via, *x.ends)]
        osmid = streets.columns["osmid"]
        near = np.flatnonzero(np.isin(osmid, np.unique(ways)))
        self.u, self.v, self.label = streets.u, streets.v, streets.nodes
        self.of: dict[int, list[int]] = {}  # the edges of each way that the traveller may use
        for e, way in zip(near.tolist(), osmid[near].tolist(), strict=True):
            self.of.setdefault(way, []).append(e)
        only = [e for x in wanted if x.only for e in self._edges((*x.starts, *x.via))]
        self.leaving: dict[int, list[int]] = {}
        for e in np.flatnonzero(np.isin(self.u, self.v[only])).tolist():
            self.leaving.setdefault(int(self.u[e]), []).append(e)

    def _edges(self, ways: Iterable[int]) -> list[int]:
        return [e for way in ways for e in self.of.get(way, ())]

    def at_node(self, x: _Restriction, told: Counter[str]) -> list[tuple[int, ...]]:
        """The turns that a restriction is of."""
        u, v = self.u, self.v
        first = [e for e in self._edges(x.starts) if self.label[v[e]] == x.node]
        last = [e for e in self._edges(x.ends) if self.label[u[e]] == x.node]
        if not first or (not last and not x.only):
            return []  # they concern streets that the traveller does not use
        if not last:
            told["restrictions to a way that is closed are not obeyed"] += 1
            return []
        pairs: list[tuple[int, ...]] = [*product(first, last)]
        if x.starts == x.ends:  # to turn around, on the street itself
            return [way for way in pairs if u[way[0]] == v[way[1]]]
        if len(first) > len(x.starts) or len(last) > len(x.ends):
            told["restrictions of a way that goes on beyond the crossing are not obeyed"] += 1
            return []
        return pairs

    def via_ways(self, x: _Restriction, told: Counter[str]) -> list[tuple[int, ...]]:
        """The ways, by edges, over which a restriction via ways leads."""
        u, v = self.u, self.v
        first, last = self._edges(x.starts), self._edges(x.ends)
        if not first or not all(way in self.of for way in x.via) or (not last and not x.only):
            return []  # they concern streets that the traveller does not use
        if not last:
            told["restrictions to a way that is closed are not obeyed"] += 1
            return []
        out: dict[int, list[tuple[int, int]]] = {}
        for way in x.via:
            for e in self.of[way]:
                out.setdefault(int(u[e]), []).append((e, way))
        ends: dict[int, list[int]] = {}
        for f in last:
            ends.setdefault(int(u[f]), []).append(f)
        found: list[tuple[int, ...]] = []
        stack: list[tuple[tuple[int, ...], frozenset[int]]] = []
        stack += [((e,), frozenset()) for e in first]
        while stack:
            gone, passed = stack.pop()
            at = int(v[gone[-1]])
            if len(passed) == len(x.via):
                found += [(*gone, f) for f in ends.get(at, ())]
            nodes = {int(u[f]) for f in gone[1:]} | {at}
            for f, way in out.get(at, ()):
                if int(v[f]) not in nodes:
                    stack.append(((*gone, f), passed | {way}))
        first, last = (list({gone[k] for gone in found}) for k in (0, -1))
        if not found:
            told["restrictions via ways that do not lead from way to way are not obeyed"] += 1
        elif len(first) > len(x.starts) or len(last) > len(x.ends):
            told["restrictions of a way that goes on beyond the crossing are not obeyed"] += 1
            return []
        return found

    def others(self, ways: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """All that leave some ways: the first edge of two, or those of more, but the first."""
        then: dict[tuple[int, ...], set[int]] = {}
        for way in ways:
            for k in range(min(2, len(way) - 1), len(way)):
                then.setdefault(way[:k], set()).add(way[k])
        return [
            (*way, f) for way, allowed in then.items()
            for f in self.leaving[int(self.v[way[-1]])] if f not in allowed
        ]  # fmt: skip


def _restriction(
    tags: dict[str, str], members: str, who: Profile, told: Counter[str]
) -> _Restriction | None:
    """What a relation says; None: it is not obeyed."""
    kinds = [tags[key] for key in who.restriction if key in tags]
    timed = any(f"{key}:conditional" in tags for key in who.restriction)
    if not (kinds or timed) or set(tags.get("except", "").split(";")) & {*who.access}:
        return None
    if not kinds or not tags.keys().isdisjoint(_HOURS):
        told["restrictions at some hours are not obeyed"] += 1
        return None
    kind = kinds[-1]
    if not kind.startswith(("no_", "only_")):
        told[f"restriction={kind} is unknown and not obeyed"] += 1
        return None
    if timed:
        told["restrictions with others at some hours are obeyed at all hours"] += 1
    roles: dict[str, list[str]] = {}
    for member in members.split(","):
        what, _, role = member.partition("@")
        roles.setdefault(role, []).append(what)
    via = roles.get("via", [])
    starts, ends = (
        [int(x[1:]) for x in roles.get(role, []) if x[0] == "w"] for role in ("from", "to")
    )
    ways = [int(x[1:]) for x in via if x[0] == "w"]
    nodes = [int(x[1:]) for x in via if x[0] == "n"]
    if not (starts and ends and via) or len(via) != (1 if nodes else len(ways)):
        told["restrictions without a way from, a node or ways via and a way to are not obeyed"] += 1
        return None
    node = nodes[0] if nodes else None
    return _Restriction(kind.startswith("only_"), starts, ends, node, tuple(dict.fromkeys(ways)))
