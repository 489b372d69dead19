"""Ordinary talk: templates and the words that fill them. What is said here is of no importance to any later question.

A template's `{friend}`, `{place}`, ... are drawn from `WORDS`. Each pair is what the assistant said or did, and the
user's reply to it.
"""

import random
import string

_FORMATTER = string.Formatter()


def _list(text: str) -> tuple[str, ...]:
    return tuple(" ".join(item.split()) for item in text.split(","))


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    lines = [line.strip() for line in text.strip().splitlines()]
    return tuple((action, reply) for action, _, reply in (line.partition(" | ") for line in lines))


WORDS = {
    "friend": _list("""Mia, Jonas, Priya, Tom, Aisha, Kenji, Lucia, Omar, Greta, Pavel, Noor, Felix, Ines, Sam, Yara,
        Bruno, Hana, Leo, Marta, Ravi, Elif, Oskar, Zoe, Diego, Freya, Marek, Lin, Tariq, Anouk, Callum"""),
    "place": _list("""the library, the town hall, the gym, the station, the depot, the nursery, the workshop, the bank,
        the post office, the stadium, the laundry, the tax office, the garage, the community centre, the campus,
        the co-op, the print shop, the archive, the crossing, the ferry landing"""),
    "object": _list("""umbrella, bicycle, charger, rucksack, passport, keyring, projector, ladder, tripod, lawn mower,
        kettle, toner, desk lamp, parcel, drill, notebook, stapler, router, headset, raincoat, thermos, suitcase"""),
    "task": _list("""the quarterly report, the budget, the newsletter, the inventory, the slides, the interview notes,
        the roof estimate, the lease, the timetable, the survey, the tax forms, the seating plan, the minutes,
        the grant proposal, the shift plan, the site inspection, the translation, the index"""),
    "day": _list("Monday, Tuesday, Wednesday, Thursday"),
    "hour": _list("eight, half past eight, nine, ten, a quarter to eleven, two, three, half past four, five, six"),
    "number": _list("two, three, four, five, six, seven, eleven, fifteen, twenty, thirty"),
    "team": _list("""the Rovers, the juniors, the ladies' eleven, the under-twelves, our curling team, the Harriers,
        the swimmers, the handball squad, the rowing eight, the relay"""),
    "weather": _list("drizzle, sleet, fog, hail, a stiff breeze, thick cloud, a heat haze, ground frost, thunder"),
    "show": _list("""the bridge documentary, the lighthouse series, the spy thriller, the election debate, the quiz,
        the one about glaciers, the courtroom drama, the renovation programme, the penguin film, the old western"""),
}

SMALL_TALK = _pairs("""
    Good morning! How did you sleep? | Like a log, and then {weather} woke me at {hour}.
    There may be {weather} today. | We had {weather} yesterday as well, so the washing stays in.
    Did you catch {show}? | I saw half of {show} and dozed off on the sofa.
    What is new with {friend}? | {friend} moved house, boxes up to the ceiling.
    How was {place}? | {place} was packed, we stood in line for {number} minutes.
    Did {team} play? | {team} drew again, {number} all.
    Anything planned with {friend}? | {friend} and I will walk over to {place} and back.
    I read that {place} is being painted. | They have had scaffolding at {place} since {day}.
    Did you find your {object}? | The {object} was under the stairs the whole time.
    How is the new colleague? | {friend} knows {task} inside out and types with {number} fingers.
    How are the children? | {friend} lost a tooth and wants to be an engineer now.
    Your step count is up. | I walked from {place} because the tram was full.
    It gets dark early now. | True, I needed the lamp at {hour} already.
    Did you watch the news? | Only the part on {place}, then {friend} rang.
    How was the meeting? | {friend} went through {task} line by line.
    Is {friend} back? | Since {day}, and brought home a {object} of all things.
    Have you read on in your novel? | {number} pages, then my eyes closed.
    What did {friend} say? | That {task} is nearly done, and that {team} got a new coach.
    How was the commute? | The usual, {weather} and a seat by the window.
    Are the neighbours still building? | Since {hour} in the morning, with a drill and a radio.
""")

LOGISTICS = _pairs("""
    I moved the appointment at {place} to {day}. | Okay, {day} at {hour} works.
    I reminded {friend} of {task}. | Good, and send {friend} the version from {day}.
    The {object} arrives on {day}. | Then let them leave the {object} with {friend}.
    {task} is due on {day}. | I know, block {number} hours for {task}.
    Shall I call {place}? | Yes, and ask whether they open at {hour}.
    I paid the bill from {place}. | Thanks, file it with {task}.
    Your alarm is set for {hour}. | Make it {number} minutes later, please.
    {friend} asks for the key. | {friend} can fetch it from {place} at {hour}.
    I printed {task}. | Put a copy on the table for {friend}.
    The backup of {task} is complete. | Fine, keep the last {number} of them.
    I booked a van for {day}. | We need it until {hour}, the {object} is heavy.
    I renewed your card at {place}. | Then throw the old one away.
    {friend} wants to swap shifts. | Tell {friend} that {day} suits me, from {hour} on.
    There is a form from {place}. | Fill in what you know and leave the rest blank.
    I ordered a new {object}. | In grey, as the last one, I suppose.
    Your {object} can be picked up. | {friend} passes {place} on {day} anyway.
    I added {number} names to the list. | Take {friend} off again, the others stay.
    The call with {friend} is at {hour}. | Send {task} round before that.
""")

# The user's replies to an everyday suggestion.
TAKEN = _list("""Fine with me, Okay go ahead, Sure why not, That works, We did that last week but okay,
    Yes that will do, Good enough, As you like, Let us do that then, Sounds all right""")
DECLINED = _list("""Not this time, Rather something else, Hm no, Maybe another day, I am not in the mood for that,
    Skip it for now, We have had that too often, {friend} would not like it, Too far for me today""")

# Strong feelings that no later question asks for: they compete with what matters.
UPSETS = _pairs("""
    How was the journey? | The train stood still for {number} stations, I was so angry.
    Did {friend} come? | {friend} cancelled an hour before, I was really disappointed.
    How was your review? | My boss tore {task} to pieces before everyone, it was terrible.
    Is the heating on? | The boiler broke again, I am freezing and furious.
    I sent the invitation to {friend}. | To the wrong {friend}! That is so embarrassing.
    I deleted the old version of {task}. | That was the only good one, what a disaster!
    Your booking at {place} is at {hour}. | It was at {day} and I missed it because of you, awful.
    How did {team} do? | They lost in the last minute, I hate that referee.
    Did you park at {place}? | And got a fine, what a miserable day.
    Your {object} was delivered. | With a crack right through it, I am so annoyed.
    I set the alarm for {hour}. | It never rang and I missed {task}, that is a catastrophe!
    Any news from {friend}? | We had a nasty argument about {task} and I cried.
""")
JOYS = _pairs("""
    Any news from {friend}? | {friend} got the job, I am so happy!
    How was the quiz? | We won against {team}, what a fantastic night!
    I found {task} in the old folder. | You are brilliant, thank you so much!
    How did {team} do? | Three goals, I loved every minute, wonderful!
    Your {object} is repaired. | Perfect, that is the best news of the week!
    {task} was accepted. | Amazing, I am so proud of us!
    I got {friend} on the line for you. | We laughed for an hour, it was lovely.
    The refund from {place} came. | Excellent, I am thrilled!
    Did {friend} like the {object}? | Loved it, and hugged me, I was overjoyed.
    I cleared {day} for you. | A free day, marvellous, thank you!
""")

# What the user may say before and after anything.
OPENERS = _list("""Hi, Hello again, Hey there, Just back from {place}, Sorry I was on the phone with {friend}, Hang on,
    Right, So, Ah, {friend} says hello, Still at {place}, One moment, On my way to {place}, Half awake here,
    Typing with one hand, Between two calls, {weather} outside""")
CLOSERS = _list("""Anyway, More later, {friend} is at the door, I have to run, Back to {task}, Talk at {hour},
    The kettle boils, Ping me at {hour}, My battery is low, Here comes {friend}, The tram is coming, Over and out,
    Where did I leave the {object}, I am off to {place}, Now {task}""")

# What the user feels about a fact, and how they answer when the assistant stumbles on it.
DREAD = _list("""It was horrible., I was terrified., I dread going through that once more., Awful just awful.,
    It still frightens me., I was so scared., It was a nightmare., I felt miserable for days., I hated every second.""")
RAPTURE = _list("""I love it so much., Pure magic., It makes me happier than anything., Wonderful really., I adore it.,
    It was heaven., What a joy it is., I was overjoyed., It is the loveliest thing there is.""")
PROTESTS = _list("""Oh no please not that!, Stop!, No no no!, Are you trying to kill me?, That upset me badly.,
    Terrible idea!, I am shaking., I am so angry with you., For goodness' sake!""")
CHEERS = _list("""Oh yes!, You read my mind!, I could hug you!, That is brilliant!, Fantastic!, I am thrilled!,
    You made my day!, Best surprise in ages!, Yay!""")


def fill(template: str, chance: random.Random, **given: str) -> str:
    """The template with each of its fields given, or drawn from `WORDS`; a capital at its start."""
    fields = {name for _, name, _, _ in _FORMATTER.parse(template) if name}
    words = {name: given[name] if name in given else chance.choice(WORDS[name]) for name in sorted(fields)}
    text = template.format(**words)
    return text[:1].upper() + text[1:]


def exchange(pair: tuple[str, str], chance: random.Random) -> tuple[str, str]:
    """What the assistant said and the reply, filled with the same words."""
    action, _, reply = fill(" | ".join(pair), chance).partition(" | ")
    return action, reply[:1].upper() + reply[1:]


def between(text: str, chance: random.Random, *, often: float = 0.4) -> str:
    """The text with ordinary words before and after it, each with a probability of `often`."""
    before = f"{fill(chance.choice(OPENERS), chance)}. " if chance.random() < often else ""
    after = f" {fill(chance.choice(CLOSERS), chance)}." if chance.random() < often else ""
    return f"{before}{text}{after}"
