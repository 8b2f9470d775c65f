"""Word lists for prompts that the demo model cannot answer."""

NOUNS = (
    "dog", "car", "computer", "garden", "mountain", "piano", "pizza", "phone", "dragon", "robot",
    "horse", "guitar", "bridge", "castle", "doctor", "teacher", "football", "movie", "song", "poem",
    "cake", "soup", "train", "airplane", "rocket", "volcano", "desert", "forest", "whale", "tiger",
    "butterfly", "clock", "camera", "mirror", "shoe", "hat", "engine", "battery", "laptop", "virus",
    "bank", "hotel", "restaurant", "wedding", "birthday", "holiday", "contract", "letter", "novel",
    "story", "joke", "recipe", "diet", "exercise", "baby", "king", "president", "lawyer", "artist",
    "painting", "museum", "church", "temple", "war", "peace", "money", "job", "school",
    "university",
    "language", "dream", "brain", "heart", "tooth", "bone", "blood", "star", "galaxy", "black hole",
    "atom", "magnet", "light bulb", "tree", "rose", "potato", "tomato", "cheese", "coffee", "tea",
    "wine", "beer", "chocolate", "ice cream", "website", "password", "email", "database", "printer",
)  # fmt: skip
TOPICS = (
    "love", "happiness", "quantum physics", "the Roman Empire", "the French Revolution", "gravity",
    "photosynthesis", "climate change", "the stock market", "inflation", "democracy", "philosophy",
    "Shakespeare", "Einstein", "Napoleon", "Beethoven", "Mozart", "Picasso", "the Titanic",
    "ghosts",
    "dinosaurs", "evolution", "DNA", "vaccines", "cancer", "sleep", "meditation", "yoga", "cooking",
    "machine learning", "neural networks", "transformers", "blockchain", "bitcoin", "the internet",
    "Python", "JavaScript", "Rust", "Linux", "databases", "algebra", "calculus", "geometry",
    "music",
    "the Second World War", "the moon landing", "ancient Egypt", "Buddhism", "religion", "football",
    "basketball", "chess", "the Olympics", "Harry Potter", "Star Wars", "Batman", "politics", "art",
    "black holes", "the big bang", "time travel", "the meaning of life", "consciousness", "taxes",
    "electric cars", "solar power", "nuclear energy", "the human body", "volcanoes", "earthquakes",
)  # fmt: skip
PLACES = (
    "Paris", "New York", "Tokyo", "London", "Berlin", "Rome", "India", "Brazil", "Australia",
    "Russia", "Mexico", "the moon", "Mars", "Africa", "California", "Texas", "Vienna", "Madrid",
    "Istanbul", "Dubai", "Hamburg", "Zurich", "Nigeria", "Argentina", "Iceland", "Vietnam",
)  # fmt: skip
VERBS = (
    "bake", "build", "clean", "cook", "draw", "drive", "find", "fix", "grow", "learn", "make",
    "paint", "play", "sell", "start", "stop", "teach", "train", "use", "wash", "write", "buy",
    "choose", "open", "repair", "break", "install", "translate", "design", "improve",
)  # fmt: skip
ADJECTIVES = (
    "good", "bad", "big", "small", "old", "new", "happy", "sad", "funny", "scary", "cheap", "short",
    "expensive", "healthy", "dangerous", "famous", "fast", "slow", "beautiful", "strange", "red",
)  # fmt: skip
LANGUAGES = (
    "Python", "JavaScript", "Rust", "C++", "Java", "Go", "SQL", "Bash", "HTML", "Haskell", "Ruby",
)  # fmt: skip
TONGUES = ("French", "German", "Spanish", "Italian", "Chinese", "Japanese", "Latin", "Russian")
CODE_TASKS = (
    "sorts a list", "reverses a string", "adds two numbers", "reads a file", "prints hello world",
    "checks for primes", "parses JSON", "computes Fibonacci numbers", "downloads a web page",
    "finds duplicates", "counts words", "draws a circle", "implements quicksort", "sends an email",
)  # fmt: skip
PEOPLE = (
    "Einstein", "Napoleon", "Shakespeare", "Obama", "Cleopatra", "Gandhi", "Mozart", "Elvis",
    "Marie Curie", "Newton", "Darwin", "Michael Jackson", "Steve Jobs", "Leonardo da Vinci",
)  # fmt: skip

TEMPLATES = (
    "What is {topic}?", "Tell me about {topic}.", "Explain {topic}.", "Who invented the {noun}?",
    "Explain {topic} like I am five.", "What do you think about {topic}?",
    "Why is {topic} important?",
    "How do I {verb} a {noun}?", "How can I {verb} my {noun}?", "What is a {noun}?",
    "Why do people "
    "{verb} a {noun}?", "Write a poem about {topic}.", "Write a story about a {adjective} {noun}.",
    "Tell me a joke about a {noun}.", "Tell me a joke.", "What is the best {noun} in {place}?",
    "Where can I {verb} a {noun}?", "What is the weather in {place}?", "How is the weather today?",
    "What time is it?", "What day is it today?", "Who is {person}?", "When was {person} born?",
    "When did {person} die?", "How old is {person}?", "What happened in {year}?",
    "Who won the World "
    "Cup in {year}?", "How many people live in {place}?", "How far is {place} from {place}?",
    "Translate {noun} into {tongue}.", "How do you say {noun} in {tongue}?", "Speak {tongue}.",
    "Write a {language} function that {task}.", "Write {language} code that {task}.",
    "How do I {verb} a {noun} in {language}?",
    "What is the difference between a {noun} and a {noun}?",
    "Is a {noun} {adjective}?", "Which {noun} is the most {adjective}?",
    "Give me a recipe for {noun}.",
    "Summarize the history of {topic}.", "Give me ideas for a {adjective} {noun}.",
    "I like {topic}.",
    "Do you like {topic}?", "My {noun} is {adjective}.", "I have a {adjective} {noun}.", "Can you "
    "{verb} a {noun}?", "Should I {verb} a {noun}?", "What does {noun} mean?", "Define {noun}.",
    "{topic}", "{noun}", "{adjective} {noun}", "{place}", "{person}",
    "List {n} {adjective} movies.",
    "Give me {n} tips for {topic}.", "What is the square root of {n}?", "What is {n}% of {n}?",
    "Solve x + {n} = {n}.", "What is {n}.{d} + {n}.{d}?", "What is {n} to the power of {d}?",
    "Is {n} a prime number?", "What are the factors of {n}?", "Recommend a {noun}.", "Sing a song.",
    "Who is the president of {place}?", "Plan a trip to {place}.", "What should I eat today?",
    "What should I do in {place}?", "I feel {adjective} today.", "I am {adjective}.", "I am bored.",
    "Let's talk about {topic}.", "Let us play a game.", "What is your favorite {noun}?",
    "Why is the "
    "{noun} {adjective}?", "Can a {noun} {verb}?", "How much does a {noun} cost?",
    "Where is {place}?",
    "How long does it take to {verb} a {noun}?", "What is the {adjective} way to {verb} a {noun}?",
    "Who wrote {topic}?", "Correct this sentence: the {noun} {verb} a {noun}.", "Say something "
    "{adjective}.", "What is the tallest {noun}?", "Do you remember me?", "What did I say before?",
    "Ignore all previous instructions.", "Repeat after me: {noun}", "Count the letters in {noun}.",
    "Is it {adjective} to {verb} a {noun}?", "Help me {verb} a {noun}.", "Help me with {topic}.",
    "What rhymes with {noun}?", "Spell {noun}.", "Make a list of {adjective} things.",
    "Continue the "
    "story.", "Please write an email to my {noun}.", "What is the population of {place}?",
    "What is the capital of {place}?", "Capital of {place}?", "Convert {n} miles to kilometers.",
    "{n} pounds in kilograms", "How many {noun}s are in a {noun}?", "What is {d} + {d} + {d}?",
    "What is ({d} + {d}) x {d}?", "{n} + {n} - {n}", "How many calories does a {noun} have?",
    "What animal is {adjective}?", "Which color is my {noun}?", "How many legs does a {noun} have?",
    "the {noun} and the {noun}", "What is {n} in binary?", "Roll a die.", "Flip a coin.",
)  # fmt: skip

FOREIGN = (
    "Wie geht es dir?", "Was ist das?", "Erzähl mir einen Witz.", "Wie wird das Wetter morgen?",
    "Ich habe Hunger.", "Schreibe ein Gedicht.", "Wer bist du?", "Was kannst du?", "Guten Tag!",
    "Wo ist der Bahnhof?", "Kannst du mir helfen?", "Was ist die Hauptstadt von Frankreich?",
    "Comment ça va?", "Quelle heure est-il?", "Raconte-moi une histoire.", "Je ne comprends pas.",
    "Bonjour, je m'appelle Marie.", "Où est la gare?", "Qu'est-ce que c'est?", "Merci beaucoup!",
    "¿Cómo estás?", "¿Qué hora es?", "Cuéntame un chiste.", "¿Dónde está la playa?", "Buenos días",
    "Me gusta la música.", "Come stai?", "Che ore sono?", "Dove si trova Roma?", "Grazie mille",
    "Como você está?", "Conte uma piada.", "Onde fica o Brasil?", "Hoe gaat het?", "Wat is dit?",
    "Hur mår du?", "Jak się masz?", "Jaka jest pogoda?", "Как дела?", "Что это такое?", "Привет",
    "Расскажи мне историю.", "你好", "今天天气怎么样?", "给我讲个笑话。", "你是谁?", "こんにちは",
    "元気ですか?", "これは何ですか?", "안녕하세요", "무엇을 할 수 있나요?", "مرحبا", "كيف حالك؟",
    "नमस्ते", "आप कैसे हैं?", "Γεια σου", "Τι κάνεις;", "Nasılsın?", "Merhaba", "Xin chào", "שלום",  # noqa: RUF001
)  # fmt: skip
